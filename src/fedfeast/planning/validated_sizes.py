"""Which sizes are validated while training beside those that choosing the served round needs."""

from math import ceil

import numpy as np

from fedfeast.evaluation.selection import spread
from fedfeast.federation import OperatingPoint
from fedfeast.planning.outline import Outline
from fedfeast.recipes.building import build_selection

CHEAP_SHARE = 0.05  # of training's MACs, that further sizes may cost
FEW = 5  # at most, where all of them cost more; the smallest and the largest at least

Points = tuple[OperatingPoint, ...]


def further_sizes(built: Outline, num_examples: np.ndarray) -> Points:
    """Return the sizes to validate beside those that choosing needs; clients have so many examples to train on."""
    recipe, points = built.recipe, built.method.operating_points()
    wanted = recipe.evaluation.sizes
    # Every client that affords a further one would be sent it, and asked once more.
    if wanted == "none" or recipe.evaluation.by == "clients":
        return ()
    needed = build_selection(recipe).points(points, built.population.budgets_macs)

    def beside(count: int) -> Points:
        return tuple(point for point in spread(points, count) if point not in needed)

    if wanted == "auto" and recipe.population.source == "fleet":
        return beside(FEW)  # who will join is not known, nor then what training costs
    if wanted == "auto":
        fewer = (beside(count) for count in (len(points), *range(FEW, 2, -1)))
        cheap = (some for some in fewer if share_of_training(built, some, num_examples) < CHEAP_SHARE)
        return next(cheap, beside(2))
    return beside(len(points) if wanted == "all" else int(wanted))


def share_of_training(built: Outline, points: Points, num_examples: np.ndarray) -> float:
    """Return what validating some sizes all through training costs, as a share of the training, in MACs."""
    recipe = built.recipe
    # Statistics are measured on one set of the server's examples, values on the other.
    passes = recipe.data.validation_examples + recipe.data.calibration_examples
    validations = ceil(recipe.training.rounds / recipe.evaluation.every_rounds)
    macs = sum(point.macs for point in points) * passes * validations
    if not macs:
        return 0.0
    training = built.training_pmacs(num_examples)
    # Networks without convolutions have no MACs by the proxy: then all of a pass counts.
    return macs / 1e15 / (training or built.training_pmacs(num_examples, cost=built.method.network.macs))
