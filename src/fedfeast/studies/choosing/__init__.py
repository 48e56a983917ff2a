"""Which method for a recipe: candidates that suit its population, trained alike, and one of them recommended."""

from fedfeast.studies.choosing.candidates import LeftOut as LeftOut
from fedfeast.studies.choosing.planning import QUESTION as QUESTION
from fedfeast.studies.choosing.planning import TITLE as TITLE
from fedfeast.studies.choosing.planning import ChoiceObserver as ChoiceObserver
from fedfeast.studies.choosing.planning import plan_choice as plan_choice
from fedfeast.studies.choosing.sizing import Sized as Sized
