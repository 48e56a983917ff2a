"""Made-up candidates: what is said of them is checked without training."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.studies.arms import method_arm
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.results import Outcome

BUDGETS = np.linspace(1e6, 2e6, 20)  # ten clients for each of two sizes
MakeStanding = Callable[..., Standing]


@pytest.fixture(scope="session")
def standing() -> MakeStanding:
    """Return a candidate by its accuracies with a small and a large size, those of further seeds, and its costs."""
    recipe = load_recipe("digits", {"training.rounds": 7})

    def make(
        name: str,
        *of_seeds: tuple[float, float],
        examples: int = 10_000,
        traffic: float = 1e6,
        pmacs: float = 1e-3,
        prices: Sequence[int] = (1_000_000, 1_500_001),
    ) -> Standing:
        outcomes = [
            Outcome(
                method_arm(name),
                seed,
                recipe,
                Curve(
                    tuple(
                        CurvePoint(str(macs), macs, macs, value, examples=examples)
                        for macs, value in zip(prices, values, strict=True)
                    )
                ),
                BUDGETS,
            )
            for seed, values in enumerate(of_seeds)
        ]
        return Standing(name, method_arm(name).label, tuple(outcomes), traffic, pmacs, 10.0)

    return make
