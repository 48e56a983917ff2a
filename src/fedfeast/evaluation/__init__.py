"""How good, at every budget."""

from fedfeast.evaluation.by_clients import ClientEvaluator as ClientEvaluator
from fedfeast.evaluation.by_clients import ClientsValidation as ClientsValidation
from fedfeast.evaluation.by_clients import EvaluatingClient as EvaluatingClient
from fedfeast.evaluation.by_clients import Held as Held
from fedfeast.evaluation.by_clients import Validation as Validation
from fedfeast.evaluation.curve import ClientWins as ClientWins
from fedfeast.evaluation.curve import Curve as Curve
from fedfeast.evaluation.curve import CurvePoint as CurvePoint
from fedfeast.evaluation.curve import count_client_wins as count_client_wins
from fedfeast.evaluation.curve import metric_of as metric_of
from fedfeast.evaluation.curve import served_points as served_points
from fedfeast.evaluation.evaluator import ClientIndex as ClientIndex
from fedfeast.evaluation.evaluator import Evaluator as Evaluator
from fedfeast.evaluation.evaluator import Measured as Measured
from fedfeast.evaluation.evaluator import measure_sets as measure_sets
from fedfeast.evaluation.passes.example_totals import measure_totals as measure_totals
from fedfeast.evaluation.passes.recalibration import StatisticsSums as StatisticsSums
from fedfeast.evaluation.passes.recalibration import augmented as augmented
from fedfeast.evaluation.passes.recalibration import recalibrate as recalibrate
from fedfeast.evaluation.selection import Selection as Selection
