"""Who is slow and who is left out: clients by tenths of their budgets."""

from fedfeast.evaluation.fairness.deciles import Decile as Decile
from fedfeast.evaluation.fairness.deciles import Fairness as Fairness
from fedfeast.evaluation.fairness.deciles import measure_fairness as measure_fairness
from fedfeast.evaluation.fairness.deciles import tenths as tenths
from fedfeast.evaluation.fairness.participation import Participation as Participation
