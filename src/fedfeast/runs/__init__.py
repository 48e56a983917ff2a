"""The run itself: a recipe at work in its folder."""

from fedfeast.runs.run import Interrupted as Interrupted
from fedfeast.runs.run import Run as Run
from fedfeast.runs.run import evaluate as evaluate
from fedfeast.runs.run import train as train
from fedfeast.runs.training import Observer as Observer
