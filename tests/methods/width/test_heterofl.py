import math
from functools import cache
from typing import Any

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Assignment, Client
from fedfeast.methods import HeteroFL
from fedfeast.networks import ResNet
from fedfeast.planning.outline import outline
from fedfeast.population import paper_population
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

SMALL = ResNet((4, 8), (1, 1), (1, 2), image_size=8, image_channels=1, classes=4, activation="before")


@cache
def paper() -> HeteroFL:
    method = outline(load_recipe("cifar100-paper", {"method.name": "heterofl"})).method
    assert isinstance(method, HeteroFL)
    return method


def small(**options: Any) -> HeteroFL:
    return HeteroFL(SMALL, (1.0, 0.5), **options)


def plan(method: HeteroFL, *clients: Client) -> list[Assignment]:
    flat = torch.zeros(method.network.layout.size)
    return method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))[0]


def test_the_five_widths_of_resnet_18() -> None:
    """The fact sheet's table 2.6: pre-activation, 100 classes, 32 x 32."""
    network = paper().network
    assert isinstance(network, ResNet)
    assert (network.activation, paper().weighting) == ("before", "samples")
    table = [(point.architecture.channels, point.parameters, point.macs) for point in paper().operating_points()]  # type: ignore[attr-defined]
    assert table == [
        ((4, 8, 16, 32), 47_480, 2_276_480),
        ((8, 16, 32, 64), 182_028, 8_878_336),
        ((16, 32, 64, 128), 712_628, 35_058_176),
        ((32, 64, 128, 256), 2_819_844, 139_322_368),
        ((64, 128, 256, 512), 11_218_340, 555_468_800),
    ]


@pytest.mark.parametrize(
    ("budget", "eighths"),
    [
        (25e6, 1),
        (35_058_175, 1),
        (35_058_176, 2),
        (139_322_367, 2),
        (139_322_368, 4),
        (555_468_799, 4),
        (555_468_800, 8),
        (1500e6, 8),
    ],
)
def test_budget_boundaries(budget: float, eighths: int) -> None:
    (assignment,) = plan(paper(), Client(0, "client", budget, 10))
    (level,) = assignment.architectures
    assert level.channels == tuple(8 * eighths * factor for factor in (1, 2, 4, 8))  # type: ignore[attr-defined]
    assert paper().served_macs(assignment) <= budget


def test_of_five_widths_four_are_ever_trained_from_25_million_macs_on() -> None:
    budgets = paper_population().budgets_macs
    clients = [Client(index, "", float(budget), 10) for index, budget in enumerate(budgets)]
    payloads = {assignment.slice_map.payload for assignment in plan(paper(), *clients)}
    assert payloads == {182_028, 712_628, 2_819_844, 11_218_340}


def test_a_slice_is_the_leading_channels_with_every_class_and_image_channel() -> None:
    (assignment,) = plan(paper(), Client(0, "client", 36e6, 10))
    shapes = assignment.slice_map.layout.shapes
    assert shapes["stem.conv"] == (16, 3, 3, 3)
    assert shapes["stage2.block0.conv1"] == (32, 16, 3, 3)
    assert shapes["stage2.block0.shortcut"] == (32, 16, 1, 1)
    assert shapes["stage2.block0.norm1.scale"] == (16,), "norms come before the convolutions"
    assert shapes["final_norm.shift"] == (128,)
    assert (shapes["head4.weight"], shapes["head4.bias"]) == ((100, 128), (100,))
    assert "stem.norm.scale" not in shapes
    assert "stage2.block0.shortcut_norm.scale" not in shapes


@pytest.mark.parametrize(("weighting", "expected"), [("count", 4.0), ("samples", 5.0)])
def test_overlaps_are_averaged_by_count_or_by_examples(weighting: str, expected: float) -> None:
    method = small(weighting=weighting)
    wide, narrow = plan(method, Client(0, "wide", 1e9, 10), Client(1, "narrow", method.points[0].macs, 30))
    answers, previous = Accumulator(SMALL.layout.size), torch.full((SMALL.layout.size,), -1.0)
    for assignment, value in ((wide, 2.0), (narrow, 6.0)):
        answers.add(assignment.slice_map, torch.full((assignment.slice_map.payload,), value), assignment.weight)
    merged = SMALL.layout.views(method.merge(previous, answers))["stage2.block0.conv2"]
    assert (merged[:4, :4] == expected).all()
    assert (merged[4:] == 2.0).all(), "only the wide client holds these"
    assert (merged[:4, 4:] == 2.0).all()


def batch(label: int, other: int = 0, mix: float = 1.0) -> Batch:
    return Batch(torch.empty(1), torch.tensor([label]), torch.tensor([other]), torch.tensor(mix))


def held(*classes: int) -> dict[str, torch.Tensor]:
    method = small(label_masked_loss=True)
    (assignment,) = plan(method, Client(0, "client", 1e9, 10, classes))
    return dict(assignment.constants)


def test_a_masked_logit_is_zero_and_learns_nothing() -> None:
    method = small(label_masked_loss=True)
    logits = torch.tensor([[2.0, 9.0, -1.0, -9.0]], requires_grad=True)
    loss, carried = method.loss("supervised", (logits,), batch(0), None, held(0, 2))
    assert carried is None
    # Each of the two absent classes adds exp(0) to the denominator; with minus infinity the loss would be 0.049.
    assert loss.item() == pytest.approx(math.log((math.exp(2) + math.exp(-1) + 2) / math.exp(2)))
    assert loss.item() == pytest.approx(0.278, abs=5e-4)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0, [1, 3]].tolist() == [0.0, 0.0]
    assert gradient[0, 0] < 0 < gradient[0, 2]


def test_the_mask_is_for_both_labels_of_a_mixed_batch() -> None:
    method = small(label_masked_loss=True)
    logits = torch.tensor([[2.0, 9.0, -1.0, -9.0]])
    loss, _ = method.loss("supervised", (logits,), batch(0, 2, 0.75), None, held(0, 2))
    total = math.log(math.exp(2) + math.exp(-1) + 2)
    assert loss.item() == pytest.approx(0.75 * (total - 2) + 0.25 * (total + 1))


def test_without_masking_every_logit_counts_and_nothing_is_told_of_labels() -> None:
    method = small()
    (assignment,) = plan(method, Client(0, "client", 1e9, 10, (0, 2)))
    assert assignment.constants == {}
    loss, _ = method.loss("supervised", (torch.tensor([[2.0, 9.0, -1.0, -9.0]]),), batch(0), None, {})
    total = sum(math.exp(logit) for logit in (2.0, 9.0, -1.0, -9.0))
    assert loss.item() == pytest.approx(math.log(total) - 2)


def test_constants_name_the_classes_that_a_client_holds() -> None:
    assert held(0, 2)["held"].tolist() == [True, False, True, False]
    assert held()["held"].tolist() == [False] * 4


def test_rows_of_classes_a_client_does_not_hold_do_not_count() -> None:
    method = small(label_row_merging=True)
    assert method.counts_in_part
    assert not small().counts_in_part
    narrow = Client(1, "narrow", method.points[0].macs, 10, (1, 2))
    clients = Client(0, "wide", 1e9, 10, (0, 1)), narrow
    answers, previous = Accumulator(SMALL.layout.size), torch.full((SMALL.layout.size,), -1.0)
    for assignment, value in zip(plan(method, *clients), (2.0, 6.0), strict=True):
        returned = torch.full((assignment.slice_map.payload,), value)
        counted = method.counted(assignment, returned, returned)
        assert counted is not None
        absent = assignment.slice_map.layout.views(~counted)
        assert {name for name, view in absent.items() if view.any()} == {"head2.weight", "head2.bias"}
        answers.add(assignment.slice_map, returned, assignment.weight, counted)
    merged = SMALL.layout.views(method.merge(previous, answers))
    assert merged["head2.bias"].tolist() == [2.0, 4.0, 6.0, -1.0], "nobody holds the last class: its row stays"
    assert merged["head2.weight"][:, :4].tolist() == [[2.0] * 4, [4.0] * 4, [6.0] * 4, [-1.0] * 4]
    assert merged["head2.weight"][:, 4:].tolist() == [[2.0] * 4, [2.0] * 4, [-1.0] * 4, [-1.0] * 4]
    assert (merged["stem.conv"][:2] == 4.0).all()


def test_without_label_rows_an_answer_counts_everywhere() -> None:
    (assignment,) = plan(small(), Client(0, "client", 1e9, 10, (0,)))
    assert small().counted(assignment, torch.zeros(1), torch.zeros(1)) is None


@pytest.mark.parametrize("widths", [[], [0.5, 1.5], [0.0]])
def test_bad_widths_are_refused_before_training(widths: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"method.widths = "):
        outline(load_recipe("digits", {"method.name": "heterofl", "method.widths": widths}))
