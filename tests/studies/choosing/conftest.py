"""Made-up candidates: what is said of them is checked without training."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.studies.arms import method_arm
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.pairs import Pair, compare_arms
from fedfeast.studies.results import Outcome, Results

BUDGETS = np.linspace(1e6, 2e6, 20)  # ten clients for each of two sizes
RECIPE = load_recipe("digits", {"training.rounds": 7})
MakeStanding = Callable[..., Standing]
MakeBeside = Callable[[Sequence[Standing]], Callable[[str], Mapping[str, Pair]]]


@pytest.fixture(scope="session")
def standing() -> MakeStanding:
    """Return a candidate by its accuracies with a small and a large size, by how much seeds vary, and its costs."""

    def make(
        name: str,
        small: float,
        large: float,
        by_seed: Sequence[float] = (0.0, 0.001, -0.001),
        traffic: float = 1e6,
        pmacs: float = 1e-3,
        prices: Sequence[int] = (1_000_000, 1_500_001),
    ) -> Standing:
        outcomes = [
            Outcome(method_arm(name), seed, RECIPE, _curve([small + more, large + more], prices), BUDGETS)
            for seed, more in enumerate(by_seed)
        ]
        return Standing(name, method_arm(name).label, tuple(outcomes), traffic, pmacs, 10.0)

    return make


def _curve(values: Sequence[float], prices: Sequence[int]) -> Curve:
    pairs = zip(prices, values, strict=True)
    return Curve(tuple(CurvePoint(str(macs), macs, macs, value, examples=2000) for macs, value in pairs))


@pytest.fixture(scope="session")
def beside() -> MakeBeside:
    """Return what compares candidates with one of them."""

    def make(standings: Sequence[Standing]) -> Callable[[str], Mapping[str, Pair]]:
        results = Results(RECIPE, tuple(outcome for one in standings for outcome in one.outcomes))
        return lambda name: {pair.arm.name: pair for pair in compare_arms(results, name)}

    return make
