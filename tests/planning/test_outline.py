"""A federation without its data: who affords what, what is covered, how long it takes."""

from typing import Any

import numpy as np
import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.machine import usable_cores
from fedfeast.planning.coverage import cover
from fedfeast.planning.outline import outline, refuse_larger_cohorts
from fedfeast.planning.timing import PassTimes, fit_line, predict_time, time_passes
from fedfeast.population import Population
from fedfeast.recipes import load_recipe
from fedfeast.stopwatch import Repeats


def test_clients_are_grouped_by_what_they_afford() -> None:
    built = outline(load_recipe("cifar100-paper"))
    positions = np.concatenate([group.clients for group in built.groups])
    assert sorted(positions.tolist()) == list(range(100))
    for group in built.groups:
        budgets = built.population.budgets_macs[group.clients]
        assert {len(built.cache.affordable(budget)) for budget in budgets} == {group.affordable}
        assert [len(one.architectures) for one in group.assignments] == [group.affordable]


def test_pass_macs_are_smallest_plus_mean_interior_plus_largest() -> None:
    built = outline(load_recipe("cifar100-paper"))
    network = built.method.network
    one, top = built.groups[0], built.groups[-1]
    assert one.pass_macs(built.method) == network.convolution_macs(built.cache[0].architecture)
    macs = [network.convolution_macs(variant.architecture) for variant in built.cache]
    assert top.pass_macs(built.method) == pytest.approx(macs[0] + np.mean(macs[1:-1]) + macs[-1])


def test_a_client_takes_part_in_its_share_of_the_rounds() -> None:
    assert outline(load_recipe("cifar100-paper")).rounds_per_client == 400
    few = outline(load_recipe("digits", {"method.name": "fedavg", "method.max_macs": 1.2e6}))
    assert len(few.participants) < 40
    assert few.rounds_per_client == pytest.approx(60 * 10 / len(few.participants))


def test_coverage_of_the_digits_federation() -> None:
    built = outline(load_recipe("digits"))
    coverage = cover(built, np.full(40, 29.0))
    assert coverage is not None
    assert sum(part["parameters"] for part in coverage["parts"]) == 546_906
    assert coverage["routed_parameters"] == coverage["activated_parameters"] == 546_906
    assert 0 < coverage["psi_min"] <= coverage["psi_max"]
    assert coverage["bound"]["discrepancy"] == pytest.approx(coverage["psi_min"] ** -2)
    blocks = {part["block"]: part["client_share"] for part in coverage["parts"] if part["stage"] == "stage3"}
    assert blocks[2] < blocks[1], "deeper blocks reach fewer clients"


def test_the_same_seed_gives_the_same_estimate() -> None:
    built = outline(load_recipe("digits"))
    assert cover(built, np.full(40, 29.0)) == cover(built, np.full(40, 29.0))


def test_only_methods_that_share_slices_have_coverage() -> None:
    assert cover(outline(load_recipe("digits", {"method.name": "fedavg"})), np.full(40, 29.0)) is None


def test_passes_are_measured_on_this_device() -> None:
    times = time_passes(outline(load_recipe("digits")))
    assert times.device == "cpu"
    assert [macs for macs, _ in times.measured] == [128_000, 1_153_536, 4_973_568]
    assert all(seconds > 0 for _, seconds in times.measured)


def test_passes_are_timed_with_the_recipes_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.planning.timing.MEASURED", Repeats(most=2, least=2))
    before, seen = torch.get_num_threads(), dict[int, int]()
    torch.set_num_threads(2)
    try:
        for wanted in (1, 3):
            built = outline(load_recipe("digits", {"engine.threads": wanted}))
            seen.clear()
            times = time_passes(built, lambda macs: seen.update({macs: torch.get_num_threads()}))
            assert seen == dict.fromkeys((128_000, 1_153_536, 4_973_568), wanted)
            assert times.threads == wanted
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    unsaid = outline(load_recipe("digits", {"engine.threads": "none"}))
    assert time_passes(unsaid).threads == usable_cores()


@pytest.mark.parametrize(
    ("macs", "seconds", "line"),
    [
        ([0, 10], [1.0, 2.0], (1.0, 0.1)),
        ([10], [2.0], (0.0, 0.2)),
        ([10, 10], [1.0, 3.0], (0.0, 0.2)),
        ([0], [2.0], (2.0, 0.0)),
        ([0, 0], [1.0, 3.0], (2.0, 0.0)),
    ],
)
def test_the_line_through_passes_holds_without_convolutions_and_for_networks_of_one_cost(
    macs: list[int], seconds: list[float], line: tuple[float, float]
) -> None:
    assert fit_line(macs, seconds) == pytest.approx(line)


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({"training.clients_per_round": 41}, True),
        ({"training.clients_per_round": 40}, False),
        ({"population.num_clients": 9}, True),
        ({"population.num_clients": 9, "population.source": "fleet"}, False),
    ],
)
def test_more_clients_a_round_than_there_are_is_refused(settings: dict[str, Any], is_refused: bool) -> None:
    recipe, clients = load_recipe("digits", settings), settings.get("population.num_clients", 40)
    population = Population(np.full(clients, 1e6))
    if not is_refused:
        return refuse_larger_cohorts(recipe, population)
    asked = recipe.training.clients_per_round
    sentence = f"training.clients_per_round = {asked} is more than the {clients} clients of the population: set it to"
    with pytest.raises(InvalidInput, match=sentence):
        refuse_larger_cohorts(recipe, population)


def test_the_prediction_on_hand_made_times() -> None:
    built = outline(load_recipe("digits", {"method.name": "fedavg"}))  # one pass of 128,000 MACs a step
    times = PassTimes("cpu", 1, ((0, 0.0),), intercept=0.5, slope=4 / 128_000 / 16)  # one second more per batch of 16
    expected = np.full(40, 17.0)  # two batches each
    predicted = predict_time(built, expected, times)
    assert predicted["seconds_per_round"] == pytest.approx(10 * 2 * 1.5)
    assert predicted["hours"] == pytest.approx(60 * 30 / 3600)


def test_short_batches_take_the_time_of_their_examples_and_batches_left_out_take_none() -> None:
    times = PassTimes("cpu", 1, ((0, 0.0),), intercept=0.5, slope=4 / 128_000 / 16)
    expected = np.full(40, 17.0)  # one batch of 16, and one example
    for settings, seconds in (
        ({"training.last_batch": "short"}, 1.5 + 0.5 + 1 / 16),
        ({"training.last_batch": "short", "training.least_distinct": 2}, 1.5),
        ({"training.least_distinct": 2}, 1.5 + 1.5),
        ({"training.last_batch": "short", "training.local_epochs": 3}, 3 * (1.5 + 0.5 + 1 / 16)),
    ):
        built = outline(load_recipe("digits", {"method.name": "fedavg", **settings}))
        assert predict_time(built, expected, times)["seconds_per_round"] == pytest.approx(10 * seconds)
    built = outline(load_recipe("digits", {"method.name": "fedavg", "training.least_distinct": 2}))
    assert predict_time(built, np.ones(40), times)["seconds_per_round"] == 0
