"""Made-up outcomes: tables and plots are checked without training, for methods that need not exist."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.methods import METHODS
from fedfeast.planning import plan
from fedfeast.planning.outline import Outline, outline
from fedfeast.population import paper_population
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.studies.arms import Arm
from fedfeast.studies.catalogue import baselines, costs, coverage
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import RECIPES, Study

TIERS = {
    "heterofl": (2.28e6, 8.9e6, 35.06e6, 139.32e6, 555.47e6),
    "scalefl": (20e6, 90e6, 250e6, 555e6),
    "fiarse": tuple(np.geomspace(12e6, 555.47e6, 24)),
}
OUTLINES = 6  # that are kept; one with FIARSE's positions takes up to 1.7 GB
MakeUp = Callable[..., Results]


@pytest.fixture(autouse=True, scope="package")
def _outlined_once() -> Iterator[None]:
    """Outline a federation once however many studies ask: FIARSE ranks all weights of its network each time."""
    outlined: dict[str, Outline] = {}

    def remember(recipe: Recipe) -> Outline:
        key = recipe.to_toml()
        if key not in outlined:
            if len(outlined) == OUTLINES:
                del outlined[next(iter(outlined))]
            outlined[key] = outline(recipe)
        return outlined[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "outline", remember)
        for module in (baselines, costs, coverage):
            patch.setattr(module, "outline", remember)
        yield


def made_up_curve(recipe: Recipe, arm: Arm, seed: int) -> Curve:
    """Return a curve that rises with MACs: FEAST's flat and high, a baseline's steep."""
    method = arm.settings["method.name"]
    macs = TIERS.get(method, tuple(variant.macs for variant in outline(recipe).cache))
    rise = np.log(np.array(macs) / macs[0]) / np.log(macs[-1] / macs[0])
    gamma = arm.settings.get("population.gamma", 1.0)
    low, gain = (0.62, 0.08) if method == "feast" else (0.2 + 0.02 * len(method), 0.4)
    accuracies = low + gain * rise - 0.05 * (1.5 - gamma) * rise + 0.004 * seed
    pairs = zip(macs, accuracies.tolist(), strict=True)
    return Curve(tuple(CurvePoint(str(cost), int(cost), int(cost / 50), accuracy) for cost, accuracy in pairs))


@pytest.fixture
def make_up() -> MakeUp:
    """Return made-up results of a study, by data set and seeds."""

    def results(study: Study, dataset: str = "cifar100", seeds: Sequence[int] = (0,)) -> Results:
        base = load_recipe(RECIPES[dataset])

        def resolve(settings: Mapping[str, Any]) -> Recipe:
            known = settings if settings.get("method.name", "feast") in METHODS else {}
            return load_recipe(RECIPES[dataset], known)

        budgets = paper_population().budgets_macs
        outcomes = [
            Outcome(arm, seed, resolve(arm.settings), made_up_curve(base, arm, seed), budgets)
            for arm in study.arms(resolve)
            for seed in seeds
        ]
        return Results(base, tuple(outcomes))

    return results
