from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from fedfeast.data import draw_local_plan, make_batches
from fedfeast.data.round_batches import BatchRecord, make_round
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.engines.graphs import GraphEngine, Precision
from fedfeast.engines.graphs.blueprint import CHUNK
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.slots import Carried, Lane, Slot
from fedfeast.federation import Assignment, LocalSgd, RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

SGD = LocalSgd(5e-2, 1.0)
RATE = 0.1


CASES: dict[str, dict[str, Any]] = {
    "feast": {},
    "fedrolex": {"method.name": "fedrolex"},
    "fiarse": {"method.name": "fiarse"},
    "labels masked": {"method.name": "heterofl", "method.label_masked_loss": True},
    "superfednas": {"method.name": "superfednas", "method.constrained": False},
}


@cache
def federation(case: str = "feast") -> Federation:
    whole = {"engine.precision": "float64", "augmentation.mixing": "alternate"}
    return assemble(load_recipe("digits", {**whole, **CASES[case]}))


def make_slot(case: str = "feast") -> tuple[Slot, GraphContext, BatchRecord]:
    built = federation(case)
    shape = (built.preparation.batch_size, *built.examples.pool.inputs.shape[1:])
    precision = Precision(torch.float64, torch.float64)
    shared = GraphContext(built.method, SGD, precision, built.device, shape, False)
    record = BatchRecord(shape, torch.float64)
    return Slot(shared, record, 0), shared, record


def assignment(position: int, case: str = "feast", round_index: int = 0) -> Assignment:
    built = federation(case)
    cohort = [max((built.clients[i] for i in built.participants), key=lambda one: one.budget_macs)]
    cohort.append(min((built.clients[i] for i in built.participants), key=lambda one: one.budget_macs))
    state, flat = built.method.initial_state(), built.initial_weights()
    return built.method.plan_round(state, flat, cohort, round_index, named_generator(0))[0][position]


def train(slot: Slot, shared: GraphContext, record: BatchRecord, one: Assignment, case: str = "feast") -> torch.Tensor:
    built = federation(case)
    generator = named_generator(0, "client", one.client.index)
    plan = draw_local_plan(one.client.num_examples, (8, 8), built.preparation, 0, generator)
    rows = make_round(built.examples, [one.client.index], [plan], record, built.preparation.normalisation)
    slot.load(built.initial_weights(), one)
    passes = [built.method.passes(one, step, generator) for step in range(plan.num_steps)]
    for row, each in zip(rows, passes, strict=True):
        slot.step(each, row, shared.positions(one)[0], RATE)
    return slot.weights[: built.method.network.layout.size]


def train_eagerly(one: Assignment, case: str = "feast") -> torch.Tensor:
    built = federation(case)
    generator = named_generator(0, "client", one.client.index)
    examples = built.examples.of_client(one.client.index)
    plan = draw_local_plan(len(examples), (8, 8), built.preparation, 0, generator)
    eager = ClientSlot(built.method, torch.float64, built.device)
    eager.load(one, one.slice_map.gather(built.initial_weights()))
    batches = make_batches(examples, plan, built.preparation, torch.float64)
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


@pytest.mark.parametrize(
    ("most_lanes", "expected"), [(1, [0, 0, 0, 0]), (2, [0, 1, 1, 1]), (3, [0, 1, 2, 1]), (9, [0, 1, 2, 3])]
)
def test_passes_share_lanes_where_memory_is_short(most_lanes: int, expected: list[int]) -> None:
    slot, shared, _ = make_slot()
    shared.most_lanes = most_lanes
    assert [slot.lanes.index(lane) for lane in slot.lanes_for(4)] == expected


@pytest.mark.parametrize("most_lanes", [1, 2])
def test_a_slot_trains_the_same_on_fewer_lanes(most_lanes: int) -> None:
    one, trained = assignment(0), []
    for lanes in (3, most_lanes):
        slot, shared, record = make_slot()
        shared.most_lanes, shared.is_short_of_memory = lanes, lanes < 3
        trained.append(one.slice_map.gather(train(slot, shared, record, one)))
        assert len(slot.lanes) == lanes
    change = (trained[0] - one.slice_map.gather(federation().initial_weights())).norm()
    assert float((trained[1] - trained[0]).norm() / change) < 1e-12
    assert float(change) > 0


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
    other = GraphContext(
        shared.method, SGD, Precision(torch.float64, activations), shared.device, shared.input_shape, False
    )
    lane = Slot(other, BatchRecord(shared.input_shape, activations), 0).lanes_for(1)[0]
    assert lane.memory.low.dtype == activations
    assert lane.memory.full.dtype == torch.float64
    assert lane.memory.low.data_ptr() != lane.memory.full.data_ptr()


def test_a_forward_pass_loads_the_weights_it_computes_with() -> None:
    slot, shared, _ = make_slot()
    network, memory = slot.lanes_for(1)[0].network(shared.largest), slot.lanes[0].memory
    layout, shapes = shared.method.network.layout, shared.method.network.shapes(shared.largest)
    for seed in range(2):
        slot.weights.copy_(torch.from_numpy(named_generator(seed).normal(size=slot.weights.numel())))
        network.forward()
        held = shared.blueprint(shared.largest).weights(memory.low, memory.full)
        for name, expected in layout.views(slot.weights, shapes).items():
            assert torch.equal(held[name], expected), name


def test_what_a_pass_leaves_reaches_the_next_one() -> None:
    slot, _, _ = make_slot()
    built, one = federation(), assignment(0)
    slot.load(built.initial_weights(), one)
    teacher, student = built.method.passes(one, 0, named_generator(0))[:2]
    first, second = slot.lanes_for(2)
    left = first.run(teacher, Carried(None, None))
    assert left.value is not None
    torch.testing.assert_close(left.value.sum(1), torch.ones(16, dtype=torch.float64))
    second.run(student, left)
    ((role, program),) = second.loss_programs()
    assert role == "student"
    assert program.carried_in is not None
    assert torch.equal(program.carried_in, left.value)


@pytest.mark.parametrize("case", ["fedrolex", "fiarse"])
def test_what_is_no_leading_slice_lies_at_the_front_of_a_slots_tensors(case: str) -> None:
    slot, shared, record = make_slot(case)
    flat = federation(case).initial_weights()
    for position in (1, 0, 1):
        one = assignment(position, case, round_index=3)
        slices = one.slice_map
        assert not slices.is_leading
        slot.load(flat, one)
        assert torch.equal(slices.pack(slot.returned(slices)), slices.pack(slices.gather(flat)))
        views, sent = slices.source.views(slot.weights, slices.layout.shapes), slices.layout.views(slices.gather(flat))
        for name, view in views.items():
            assert torch.equal(view, sent[name])
        train(slot, shared, record, one, case)
        got, expected = slices.pack(slot.returned(slices)), slices.pack(train_eagerly(one, case))
        change = (expected - slices.pack(slices.gather(flat))).norm()
        assert float(change) > 0
        assert float((got - expected).norm() / change) < 1e-9


def test_a_slot_that_computes_with_other_weights_keeps_them_apart() -> None:
    slot, shared, record = make_slot("fiarse")
    assert slot.num_bytes == 3 * 8 * slot.weights.numel() + record.num_bytes
    one = assignment(1, "fiarse")
    train(slot, shared, record, one, "fiarse")
    memory = slot.lanes[0].memory
    blueprint = shared.blueprint(shared.largest)
    computed = blueprint.weights(memory.low, memory.full)["head4.weight"]
    mask = shared.method.network.layout.views(one.slice_map.mask)["head4.weight"]  # type: ignore[attr-defined]
    assert 0 < int(mask.sum()) < mask.numel()
    assert (computed[~mask] == 0).all()


def test_the_constants_of_each_client_reach_the_loss() -> None:
    slot, shared, record = make_slot("labels masked")
    one = assignment(0, "labels masked")
    held = one.constants["held"]
    assert bool(held.any())
    for constants in ({"held": held}, {"held": ~held}, {"held": held}):
        given = replace(one, constants=constants)
        got = one.slice_map.gather(train(slot, shared, record, given, "labels masked"))
        expected = train_eagerly(given, "labels masked")
        change = (expected - one.slice_map.gather(federation("labels masked").initial_weights())).norm()
        assert float((got - expected).norm() / change) < 1e-9
    assert shared.num_graphs == 3, "the loss was captured once, and reads the constants where they lie"
    same, other = (
        train_eagerly(replace(one, constants=each), "labels masked") for each in ({"held": held}, {"held": ~held})
    )
    assert not torch.allclose(same, other), "the constants must tell the difference"


def stranger() -> Assignment:
    """A client that trains a network to which training does not come back."""
    built = federation("superfednas")
    cohort = [built.clients[index] for index in built.participants[:4]]
    planned, _ = built.method.plan_round(
        built.method.initial_state(), built.initial_weights(), cohort, 0, named_generator(0)
    )
    return next(one for one in planned if one.architectures[0] not in built.method.trained_architectures())


def test_a_network_of_one_client_is_captured_at_its_second_step_and_trains_the_same() -> None:
    slot, shared, record = make_slot("superfednas")
    one = stranger()
    uncaptured = one.slice_map.gather(train(slot, shared, record, one, "superfednas"))
    assert shared.num_graphs == 1, "graphs for one client are not counted"
    (lane,), (architecture,) = slot.lanes, one.architectures
    assert lane.network(architecture).is_captured
    assert lane.network(architecture) is lane.network(architecture), "ready for the client's next step"
    fresh = Lane(shared, slot.weights, slot._batch, {}, 0)
    assert [fresh.network(architecture).is_captured for _ in range(3)] == [False, True, True]

    other_slot, other, other_record = make_slot("superfednas")
    other.architectures = (*other.architectures, *one.architectures)
    captured = one.slice_map.gather(train(other_slot, other, other_record, one, "superfednas"))
    assert other.num_graphs == 3
    assert torch.equal(captured, uncaptured)
    expected = train_eagerly(one, "superfednas")
    change = (expected - one.slice_map.gather(federation("superfednas").initial_weights())).norm()
    assert float((uncaptured - expected).norm() / change) < 1e-9


def test_networks_of_one_client_take_turns_on_a_lane() -> None:
    slot, shared, record = make_slot("superfednas")
    first = stranger()
    known = replace(first, architectures=(shared.method.network.space.smallest,))  # type: ignore[attr-defined]
    results = [train(slot, shared, record, one, "superfednas").clone() for one in (first, known, first)]
    assert torch.equal(results[0], results[2])
    assert shared.num_graphs == 3


def test_a_network_may_come_again_in_the_next_round() -> None:
    built, one = federation("superfednas"), stranger()
    whole = Precision(torch.float64, torch.float64)
    engine = GraphEngine(built.method, built.examples, built.preparation, SGD, 0, whole, built.device)
    flat = built.initial_weights()
    first, again = (engine.run_round(RoundOrder(flat, [one], 0, RATE)) for _ in range(2))
    assert torch.equal(first.flat, again.flat)
    assert first.losses == again.losses
