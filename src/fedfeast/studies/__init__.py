"""Several runs under one protocol, and their numbers beside the paper's."""

from fedfeast.studies.catalogue import CHOOSE as CHOOSE
from fedfeast.studies.catalogue import STUDIES as STUDIES
from fedfeast.studies.catalogue import find_study as find_study
from fedfeast.studies.options import StudyOptions as StudyOptions
from fedfeast.studies.options import parse_seeds as parse_seeds
from fedfeast.studies.pairs import Pair as Pair
from fedfeast.studies.pairs import compare_arms as compare_arms
from fedfeast.studies.running import StudyObserver as StudyObserver
from fedfeast.studies.running import StudyPlan as StudyPlan
from fedfeast.studies.running import StudyResult as StudyResult
from fedfeast.studies.running import conclude_study as conclude_study
from fedfeast.studies.running import plan_study as plan_study
from fedfeast.studies.running import train_study as train_study
from fedfeast.studies.side_by_side import FailedRuns as FailedRuns
from fedfeast.studies.side_by_side import RunProgress as RunProgress
from fedfeast.studies.study import Study as Study
