from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tiny import deployed, examples
from torch import Tensor

from fedfeast.data import Examples, Normalisation
from fedfeast.data.tasks import CLASSIFICATION, NOWHERE, Task, task_named
from fedfeast.evaluation import ClientIndex, Evaluator, Measured, measure_sets, measure_totals, recalibrate
from fedfeast.evaluation.evaluator import Cost
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks import Layout
from fedfeast.networks.layers import Layers, Weights

NORMALISATION = Normalisation((0.4,), (0.3,))
POINTS = tuple(OperatingPoint(f"{share:g}", 10 * (1 + place), place, share) for place, share in enumerate((0.5, 1.0)))


class Echo:
    """Answers with its own input, made smaller by its architecture."""

    def forward(self, weights: Weights, inputs: Tensor, architecture: Any, layers: Layers) -> tuple[Tensor, ...]:
        return (architecture * inputs,)


@dataclass(frozen=True)
class Echoes:
    """A method of which a test needs that it deploys."""

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        network: Any = Echo()
        return Deployed(network, point.architecture, Layout.of({"w": (1,)}), flat, point.macs + 1, 7)


METHOD: Any = Echoes()
FLAT = torch.zeros(1, dtype=torch.float64)
PLAIN = Normalisation((0.0,), (1.0,))


def regression(inputs: list[float], labels: list[float]) -> Examples:
    return Examples(torch.tensor(inputs).reshape(-1, 1), torch.tensor(labels).reshape(-1, 1))


def test_every_example_counts_once() -> None:
    network, held, test = deployed(), examples(250), examples(1203, "test")
    statistics = recalibrate(network, held, NORMALISATION)
    totals = measure_totals(network, statistics, test, NORMALISATION, CLASSIFICATION)
    assert totals.shape == (1203, 2)
    right, count = totals.sum(dim=0).tolist()
    assert (count, right) == (1203, round(right))
    assert 0 < right < 1203
    assert Evaluator(held, test, NORMALISATION).figures(network) == {"accuracy": right / 1203}
    impossible = Examples(test.inputs, torch.full_like(test.labels, NOWHERE))
    assert measure_totals(network, statistics, impossible, NORMALISATION, CLASSIFICATION).sum(dim=0).tolist() == [
        0,
        1203,
    ]


def test_a_curve_of_errors_scores_by_the_chosen_metric() -> None:
    test = regression([1.0, 2.0, 3.0, 6.0], [1.0, 2.0, 3.0, 6.0])
    evaluator = Evaluator(test, test, PLAIN, task_named("regression"))
    told: list[str] = []
    curve = evaluator.curve(METHOD, FLAT, POINTS, lambda point: told.append(point.name))
    half, whole = curve.points
    assert told == ["0.5", "1"]
    assert (whole.value, whole.figures["r2"], whole.macs, whole.parameters) == (0.0, 1.0, 21, 7)
    assert half.value == half.figures["rmse"] == pytest.approx((12.5 / 4) ** 0.5)
    assert half.figures["mae"] == pytest.approx(1.5)
    assert half.standard_error is None
    assert curve.unserved == pytest.approx(3.5**0.5), "who has no network says the mean"
    assert evaluator.better(0.5, 0.6)
    assert not evaluator.better(0.6, 0.6)
    by_fit = Evaluator(
        test, test, PLAIN, task_named("regression"), scored_by=task_named("regression").metric_named("r2")
    )
    assert [point.value for point in by_fit.curve(METHOD, FLAT, POINTS).points] == pytest.approx([1 - 12.5 / 14, 1])
    assert by_fit.better(0.6, 0.5)


def test_values_by_client_and_the_standard_error_over_clients() -> None:
    test = regression([2.0, 4.0, 6.0, 8.0, 1.0, 3.0], [0.0, 1.0, 2.0, 3.0, 0.0, 0.0])
    clients = ClientIndex(("a", "b", "nobody", "c"), np.array([0, 1, 0, 1, 3, 3]))
    mae = task_named("regression").metric_named("mae")
    measured = Evaluator(test, test, PLAIN, task_named("regression"), clients, mae).measure(METHOD, FLAT, POINTS[:1])
    by_client = measured.client_values
    assert by_client.shape == (1, 4)
    np.testing.assert_allclose(by_client, [[1.0, 1.0, np.nan, 1.0]])
    assert measured.curve.points[0].value == 1.0
    assert measured.curve.points[0].standard_error == 0.0
    unlike = regression([2.0, 4.0, 6.0, 8.0, 1.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    measured = Evaluator(unlike, unlike, PLAIN, task_named("regression"), clients, mae).measure(
        METHOD, FLAT, POINTS[:1]
    )
    values = np.array([2.0, 3.0, 1.0])  # the mean absolute errors of clients of one size
    np.testing.assert_allclose(measured.client_values, [[2.0, 3.0, np.nan, 1.0]])
    assert measured.curve.points[0].standard_error == pytest.approx(values.std(ddof=1) / 3**0.5)
    assert measured.summary()["clients"] == 4


def test_clients_of_unequal_size_are_left_out_in_turn() -> None:
    totals = torch.tensor([[[1.0, 2.0], [9.0, 10.0], [2.0, 3.0]]], dtype=torch.float64)  # right, of so many
    measured = Measured(CLASSIFICATION, CLASSIFICATION.metric, (Cost("1k", 1000, 1),), totals, ("a", "b", "c"))
    left = np.array([11 / 13, 3 / 5, 10 / 12])
    (point,) = measured.curve.points
    assert point.value == 12 / 15
    assert point.standard_error == pytest.approx((2 / 3 * ((left - left.mean()) ** 2).sum()) ** 0.5)


def test_what_clients_measured_adds_up_to_the_whole() -> None:
    test = examples(90, "test")
    owners = np.arange(90) % 3
    network, held = deployed(), examples(60)
    whole = Evaluator(held, test, NORMALISATION)
    statistics = recalibrate(network, held, NORMALISATION)
    parts = []
    for client in range(3):
        own = test.select(torch.from_numpy(np.flatnonzero(owners == client)))
        parts.append(measure_totals(network, statistics, own, NORMALISATION, CLASSIFICATION).sum(dim=0))
    totals = torch.stack(parts)
    assert CLASSIFICATION.figures(totals.sum(dim=0)) == whole.figures(network)
    indexed = Evaluator(held, test, NORMALISATION, clients=ClientIndex(("c0", "c1", "c2"), owners))
    assert torch.equal(indexed.totals(network, statistics), totals)


def test_a_network_that_no_client_could_run_is_no_point() -> None:
    totals = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [1.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    costs = tuple(Cost(name, macs, 1) for macs, name in enumerate("abc"))
    measured = Measured(CLASSIFICATION, CLASSIFICATION.metric, costs, totals.double(), ("one", "two"))
    assert [(point.name, point.value) for point in measured.curve.points] == [("a", 4 / 6), ("b", 1 / 4)]
    assert measured.curve.points[1].standard_error is None, "of a single client"
    nobody = Measured(CLASSIFICATION, CLASSIFICATION.metric, costs, torch.zeros(3, 1, 2), ())
    assert nobody.curve.points == ()


class Counting(Evaluator):
    recalibrations = 0

    def recalibrate_group(self, group: PrefixGroup) -> Any:
        Counting.recalibrations += len(group.networks)
        return super().recalibrate_group(group)


def test_several_sets_share_networks_and_their_calibration() -> None:
    task: Task = task_named("regression")
    one, two = regression([1.0, 2.0], [1.0, 2.0]), regression([4.0], [3.0])
    sets = {"held out": Counting(one, one, PLAIN, task), "known": Counting(one, two, PLAIN, task)}
    measured = measure_sets(sets, METHOD, FLAT, POINTS)
    assert Counting.recalibrations == len(POINTS)
    assert list(measured) == ["held out", "known"]
    assert [point.value for point in measured["known"].curve.points] == [1.0, 1.0]
    assert measured["held out"].curve == sets["held out"].curve(METHOD, FLAT, POINTS)
    assert measure_sets(sets, METHOD, FLAT, ())["known"].curve.points == ()


def test_shares_of_right_examples_know_how_many_there_were() -> None:
    totals = torch.tensor([[[3.0, 4.0]], [[8.0, 9.0]]], dtype=torch.float64)  # (points, clients, sums)
    costs = (Cost("a", 1, 1), Cost("b", 2, 2))
    server = Measured(CLASSIFICATION, CLASSIFICATION.metric, costs, totals)
    assert [point.examples for point in server.curve.points] == [4, 9]
    known = Measured(CLASSIFICATION, CLASSIFICATION.metric, costs, totals, ("me",))
    assert [point.examples for point in known.curve.points] == [None, None]
    numbers = task_named("regression")
    other = Measured(numbers, numbers.metric, costs, torch.ones(2, 1, 5, dtype=torch.float64))
    assert [point.examples for point in other.curve.points] == [None, None]
