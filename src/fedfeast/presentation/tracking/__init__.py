"""Experiment trackers that watch a training: TensorBoard, MLflow, Weights & Biases."""

from fedfeast.presentation.tracking.choice import choose_trackers as choose_trackers
from fedfeast.presentation.tracking.tracked import tell_finished as tell_finished
from fedfeast.presentation.tracking.tracked import tracked as tracked
