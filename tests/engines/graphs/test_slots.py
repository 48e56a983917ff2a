from functools import cache

import pytest
import torch

from fedfeast.data import draw_local_plan, make_batches
from fedfeast.data.round_batches import BatchRecord, make_round
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.blueprint import CHUNK
from fedfeast.engines.graphs.slots import Carried, Slot
from fedfeast.engines.graphs.workshop import Workshop
from fedfeast.federation import Assignment, LocalSgd
from fedfeast.randomness import named_generator
from fedfeast.runs import load_recipe
from fedfeast.runs.assembly import Federation, assemble

SGD = LocalSgd(5e-2, 1.0)
RATE = 0.1


@cache
def federation() -> Federation:
    return assemble(load_recipe("digits", {"engine.precision": "float64", "augmentation.mixing": "alternate"}))


def make_slot() -> tuple[Slot, Workshop, BatchRecord]:
    built = federation()
    shape = (built.preparation.batch_size, *built.examples.pool.images.shape[1:])
    precision = Precision(torch.float64, torch.float64)
    shared = Workshop(built.method, SGD, precision, built.device, shape, False)
    record = BatchRecord(shape, torch.float64)
    return Slot(shared, record, 0), shared, record


def assignment(position: int) -> Assignment:
    built = federation()
    cohort = [max((built.clients[i] for i in built.participants), key=lambda one: one.budget_macs)]
    cohort.append(min((built.clients[i] for i in built.participants), key=lambda one: one.budget_macs))
    return built.method.plan_round({}, built.initial_weights(), cohort, 0, named_generator(0))[0][position]


def train(slot: Slot, shared: Workshop, record: BatchRecord, one: Assignment) -> torch.Tensor:
    built = federation()
    generator = named_generator(0, "client", one.client.index)
    plan = draw_local_plan(one.client.num_examples, (8, 8), built.preparation, 0, generator)
    rows = make_round(built.examples, [one.client.index], [plan], record, built.preparation.normalisation)
    slot.load(built.initial_weights(), one)
    passes = [built.method.passes(one, step, generator) for step in range(plan.num_steps)]
    for row, each in zip(rows, passes, strict=True):
        slot.step(each, row, shared.positions(one)[0], RATE)
    return slot.weights[: built.method.network.layout.size]


def train_eagerly(one: Assignment) -> torch.Tensor:
    built = federation()
    generator = named_generator(0, "client", one.client.index)
    examples = built.examples.of_client(one.client.index)
    plan = draw_local_plan(len(examples), (8, 8), built.preparation, 0, generator)
    eager = ClientSlot(built.method, torch.float64, built.device)
    eager.load(one, one.slice_map.gather(built.initial_weights()))
    batches = make_batches(examples, plan, built.preparation.normalisation, torch.float64)
    train_client(built.method, one, eager, batches, SGD, RATE, generator)
    return eager.weights


def test_a_slot_trains_as_the_eager_engine_and_is_used_again() -> None:
    slot, shared, record = make_slot()
    for position in (0, 1, 0):
        one = assignment(position)
        active = torch.zeros(slot.weights.numel(), dtype=torch.bool)
        active[shared.positions(one)[0].long()] = True
        trained = one.slice_map.gather(active[: one.slice_map.source.size])
        got, expected = one.slice_map.gather(train(slot, shared, record, one)), train_eagerly(one)
        change = (expected - one.slice_map.gather(federation().initial_weights()))[trained].norm()
        assert float(change) > 0
        assert float((got - expected)[trained].norm() / change) < 1e-9


def test_graphs_are_captured_once() -> None:
    slot, shared, record = make_slot()
    train(slot, shared, record, assignment(0))
    lane, captured = slot.lanes[0], shared.num_graphs
    assert captured > 0
    assert lane.network(shared.largest) is lane.network(shared.largest)
    train(slot, shared, record, assignment(0))
    assert shared.num_graphs == captured
    roles = [role for role, _ in lane.loss_programs()]
    assert roles == ["teacher"], "the teacher always runs on the first lane"


def test_lanes_are_opened_as_passes_need_them() -> None:
    slot, _, _ = make_slot()
    assert slot.lanes == []
    assert len(slot.lanes_for(2)) == 2
    assert slot.lanes_for(1) == slot.lanes[:1]
    assert len(slot.lanes_for(3)) == len(slot.lanes) == 3


def test_memory_of_a_slot() -> None:
    slot, shared, record = make_slot()
    size = shared.method.network.layout.size
    assert slot.weights.numel() % CHUNK == 0
    assert size <= slot.weights.numel() < size + CHUNK
    assert slot.num_bytes == 2 * 8 * slot.weights.numel() + record.num_bytes
    slot.load(torch.arange(size, dtype=torch.float64), assignment(0))
    assert slot.weights[:size].tolist() == list(range(size))


@pytest.mark.parametrize("activations", [torch.float64, torch.bfloat16])
def test_a_lane_keeps_rounded_weights_apart(activations: torch.dtype) -> None:
    shared = make_slot()[1]
    other = Workshop(
        shared.method, SGD, Precision(torch.float64, activations), shared.device, shared.image_shape, False
    )
    lane = Slot(other, BatchRecord(shared.image_shape, activations), 0).lanes_for(1)[0]
    assert lane.memory.low.dtype == activations
    assert lane.memory.full.dtype == torch.float64
    assert (lane.memory.low is lane.memory.full) == (activations == torch.float64)


def test_what_a_pass_leaves_reaches_the_next_one() -> None:
    slot, _, _ = make_slot()
    built, one = federation(), assignment(0)
    slot.load(built.initial_weights(), one)
    teacher, student = built.method.passes(one, 0, named_generator(0))[:2]
    first, second = slot.lanes_for(2)
    left = first.run(teacher, slot.weights, Carried(None, None))
    assert left.value is not None
    torch.testing.assert_close(left.value.sum(1), torch.ones(16, dtype=torch.float64))
    second.run(student, slot.weights, left)
    ((role, program),) = second.loss_programs()
    assert role == "student"
    assert program.carried_in is not None
    assert torch.equal(program.carried_in, left.value)
