import math
from collections import Counter
from functools import cache

import pytest
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Assignment, Client, Pass
from fedfeast.methods import FjORD
from fedfeast.networks import ResNet
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

SMALL = ResNet((5, 10), (1, 1), (1, 2), image_size=8, image_channels=1, classes=3)


@cache
def paper() -> FjORD:
    method = outline(load_recipe("cifar100-paper", {"method.name": "fjord"})).method
    assert isinstance(method, FjORD)
    return method


def plan(method: FjORD, *clients: Client) -> list[Assignment]:
    flat = torch.zeros(method.network.layout.size)
    return method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))[0]


def test_the_five_widths_of_resnet_18() -> None:
    """The fact sheet's section 5, as printed; all five are affordable from 25M on."""
    network = paper().network
    assert isinstance(network, ResNet)
    assert network.activation == "after"
    points = paper().operating_points()
    assert [round(point.macs / 1e6, 2) for point in points] == [23.12, 91.10, 202.99, 360.40, 555.47]
    assert [round(point.parameters / 1e6, 3) for point in points] == [0.467, 1.822, 4.077, 7.213, 11.220]
    assert paper().tiers[0].trained.channels == (13, 26, 52, 103), "rounded up"


@pytest.mark.parametrize(("budget", "widths"), [(25e6, 1), (91_103_971, 1), (91_103_972, 2), (400e6, 4), (1.5e9, 5)])
def test_a_client_receives_its_largest_width_and_may_train_all_below(budget: float, widths: int) -> None:
    (assignment,) = plan(paper(), Client(0, "client", budget, 10))
    levels = [point.architecture for point in paper().operating_points()]
    assert list(assignment.architectures) == levels[:widths]
    assert assignment.slice_map.payload == paper().operating_points()[widths - 1].parameters
    assert assignment.weight == 10


def test_every_mini_batch_draws_one_affordable_width_uniformly() -> None:
    (assignment,) = plan(paper(), Client(0, "client", 250e6, 10))
    generator = named_generator(0, "draws")
    drawn: Counter[Pass] = Counter()
    for step in range(3000):
        (one_pass,) = paper().passes(assignment, step, generator)
        drawn[one_pass] += 1
    assert drawn.keys() == {Pass(level, "supervised") for level in assignment.architectures}
    assert all(abs(count / 3000 - 1 / 3) < 0.04 for count in drawn.values())
    assert paper().expected_passes(assignment) == dict.fromkeys(assignment.architectures, pytest.approx(1 / 3))


def test_with_distillation_the_largest_width_is_trained_first_and_teaches_the_drawn_one() -> None:
    method = FjORD(paper().network, distillation=True)
    (assignment,) = plan(method, Client(0, "client", 250e6, 10))
    generator, students = named_generator(0, "draws"), Counter[object]()
    for step in range(3000):
        teacher, student = method.passes(assignment, step, generator)
        assert teacher == Pass(assignment.architectures[-1], "teacher")
        assert student.role == "student"
        students[student.architecture] += 1
    assert students.keys() == set(assignment.architectures), "the drawn width may be the teacher's own"
    assert all(abs(count / 3000 - 1 / 3) < 0.04 for count in students.values())
    expected = dict.fromkeys(assignment.architectures[:2], 1 / 3) | {assignment.architectures[-1]: 4 / 3}
    assert method.expected_passes(assignment) == pytest.approx(expected)


def test_a_student_learns_from_its_teacher_alone() -> None:
    method = FjORD(SMALL, distillation=True)
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.75))
    logits = torch.tensor([[math.log(4.0), 0.0, math.log(3.0)]], requires_grad=True)
    loss, carried = method.loss("teacher", (logits,), batch, None, {})
    assert loss.item() == pytest.approx(-0.75 * math.log(4 / 8) - 0.25 * math.log(1 / 8))
    assert carried is not None
    assert not carried.requires_grad
    torch.testing.assert_close(carried, torch.tensor([[4 / 8, 1 / 8, 3 / 8]]))

    student = torch.tensor([[0.0, math.log(2.0), 0.0]], requires_grad=True)
    loss, _ = method.loss("student", (student,), batch, carried, {})
    assert loss.item() == pytest.approx(-4 / 8 * math.log(1 / 4) - 1 / 8 * math.log(2 / 4) - 3 / 8 * math.log(1 / 4))
    (gradient,) = torch.autograd.grad(loss, student)
    torch.testing.assert_close(gradient, torch.tensor([[1 / 4 - 4 / 8, 2 / 4 - 1 / 8, 1 / 4 - 3 / 8]]))


def test_without_distillation_a_pass_leaves_nothing() -> None:
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.75))
    loss, carried = FjORD(SMALL).loss("supervised", (torch.tensor([[math.log(3.0), 0.0, 0.0]]),), batch, None, {})
    assert loss.item() == pytest.approx(-0.75 * math.log(3 / 5) - 0.25 * math.log(1 / 5))
    assert carried is None


def nested_means(method: FjORD, previous: Tensor, planned: list[Assignment], answers: list[Tensor]) -> Tensor:
    """Average as the authors do: from the widest to the narrowest, W[:out, :in] over all who hold at least that."""
    merged = previous.clone()
    for tier in reversed(method.tiers):
        shapes = method.network.shapes(tier.trained)
        holders = [pair for pair in zip(planned, answers, strict=True) if tier.trained in pair[0].architectures]
        total = sum(assignment.client.num_examples for assignment, _ in holders)
        for name, view in method.network.layout.views(merged, shapes).items():
            parts = [
                assignment.client.num_examples / total * assignment.slice_map.layout.views(answer, shapes)[name]
                for assignment, answer in holders
            ]
            if parts:
                view.copy_(torch.stack(parts).sum(dim=0))
    return merged


def test_aggregation_is_nested_and_weighs_examples() -> None:
    method, generator = FjORD(SMALL), named_generator(0, "answers")
    budgets = [method.points[width].macs for width in (1, 3, 3, 0)]
    planned = plan(method, *(Client(index, "", budget, 5 + 3 * index) for index, budget in enumerate(budgets)))
    answers = [torch.from_numpy(generator.normal(size=one.slice_map.payload)) for one in planned]
    previous = torch.from_numpy(generator.normal(size=SMALL.layout.size))
    accumulator = Accumulator(SMALL.layout.size)
    for assignment, answer in zip(planned, answers, strict=True):
        accumulator.add(assignment.slice_map, answer, assignment.weight)
    merged = method.merge(previous, accumulator)
    torch.testing.assert_close(merged, nested_means(method, previous, planned, answers), rtol=1e-12, atol=1e-12)
    widest = SMALL.layout.views(merged)["stage2.block0.conv2"]
    before = SMALL.layout.views(previous)["stage2.block0.conv2"]
    assert torch.equal(widest[8:], before[8:]), "nobody held the last fifth"


def test_widths_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"method.widths = \[0.2, 1.2\]"):
        FjORD(SMALL, (0.2, 1.2)).operating_points()
