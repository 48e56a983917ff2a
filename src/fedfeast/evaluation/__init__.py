"""How good, at every budget."""

from fedfeast.evaluation.curve import ClientWins as ClientWins
from fedfeast.evaluation.curve import Curve as Curve
from fedfeast.evaluation.curve import CurvePoint as CurvePoint
from fedfeast.evaluation.curve import Evaluator as Evaluator
from fedfeast.evaluation.curve import count_client_wins as count_client_wins
from fedfeast.evaluation.curve import measure_accuracy as measure_accuracy
from fedfeast.evaluation.curve import served_points as served_points
from fedfeast.evaluation.recalibration import recalibrate as recalibrate
