import json

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.serving.measuring import Timing, measure_device, suggest_budget


def timing(macs: int, milliseconds: float) -> Timing:
    return Timing(str(macs), macs, 10, milliseconds, (milliseconds, milliseconds), 3)


TIMINGS = [timing(100, 1.0), timing(200, 3.0), timing(300, 2.0), timing(400, 5.0)]
SERVED = [100, 150, 200, 300, 400]


@pytest.mark.parametrize(
    ("target", "budget", "served"),
    [(1.0, 100, 100), (2.0, 150, 150), (4.0, 350, 300), (5.0, 400, 400), (99.0, 400, 400)],
)
def test_a_budget_lies_on_the_line_between_measured_sizes(target: float, budget: int, served: int) -> None:
    got = suggest_budget(TIMINGS, SERVED, target)
    assert got == {"target_milliseconds": target, "budget_macs": budget, "served_macs": served}


def test_a_latency_below_the_smallest_network_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"--target-ms 0.5: the smallest network takes 1 ms here \(100 MACs\)"):
        suggest_budget(TIMINGS, SERVED, 0.5)


@pytest.mark.parametrize("settings", [{}, {"method.name": "heterofl"}, {"data.name": "cifar100"}])
def test_every_recipe_is_measured_without_data(settings: dict[str, str]) -> None:
    recipe = "cifar100-paper" if "data.name" in settings else "digits"
    before = torch.get_num_threads()
    seen: list[Timing] = []
    measured = measure_device(recipe, settings, 1e6, threads=1, num_variants=2, on_variant=seen.append)
    assert torch.get_num_threads() == before
    assert measured["threads"] == 1
    macs = [one["macs"] for one in measured["variants"]]
    assert macs == sorted(macs)
    assert len(seen) == 2
    assert measured["suggestion"]["budget_macs"] == measured["suggestion"]["served_macs"] == macs[-1]
    assert measured["peak_memory_megabytes"] > 10
    for one in measured["variants"]:
        assert one["fastest_milliseconds"] <= one["milliseconds"] <= one["slowest_milliseconds"]
        assert one["macs_per_second"] == pytest.approx(1e3 * one["macs"] / one["milliseconds"])
    json.dumps(measured)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target_milliseconds": -1.0}, "--target-ms -1"),
        ({"target_milliseconds": float("nan")}, "--target-ms nan"),
        ({"num_variants": 1}, "--variants 1"),
        ({"threads": 0}, "--threads 0"),
    ],
)
def test_bad_options_are_said(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        measure_device("digits", **options)  # type: ignore[arg-type]
