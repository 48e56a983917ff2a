import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.fused_layers import FusedLayers
from fedfeast.engines.graphs.gradient_plan import plan_gradients
from fedfeast.engines.graphs.memory import (
    OUTSIDE_TORCH,
    Arrangement,
    Footprint,
    arrange,
    arrangement_that_fits,
    estimate_footprint,
    memory_limit,
    pool_shares,
    room_for_slots,
    saved_bytes,
    saved_bytes_by_autograd,
)
from fedfeast.engines.graphs.programs import COUNTERS, Memory
from fedfeast.engines.graphs.slots import Slot
from fedfeast.federation import LocalSgd, Pass
from fedfeast.networks import Layout
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.units import GIB

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUNDED = Precision()
ONE_PASS = [[10]]
THREE_PASSES = [[10, 1, 5], [8, 1, 7]]  # MACs of the first, the second and the third pass of two steps


@cache
def context(fused: bool = True, precision: Precision = ROUNDED) -> GraphContext:
    method = outline(load_recipe("digits")).method
    return GraphContext(method, LocalSgd(), precision, CPU, (4, 1, 8, 8), fused)


def drawn_steps() -> list[list[Pass]]:
    built = outline(load_recipe("digits"))
    generator = named_generator(0, "steps")
    return [built.method.passes(built.groups[-1].assignments[0], step, generator) for step in range(20)]


@pytest.mark.parametrize(
    ("room", "wanted", "expected"),
    [
        (-100, 4, Arrangement(1, 1)),  # there is always one
        (14, 4, Arrangement(1, 1)),
        (15, 4, Arrangement(1, 1)),
        (29, 4, Arrangement(1, 3)),
        (100, 4, Arrangement(4, 3)),
        (1000, 4, Arrangement(40, 3)),  # all fit, and more would
    ],
)
def test_slots_that_fit_a_room(room: int, wanted: int, expected: Arrangement) -> None:
    footprint = Footprint(10, 2, (3, 3, 3))
    assert footprint.of_slot(3) == 25
    assert footprint.of_slot(1) == 15
    assert arrange(room, footprint, wanted, THREE_PASSES) == expected


def test_more_clients_with_fewer_lanes_where_that_keeps_more_passes_at_work() -> None:
    small, large = Footprint(1, 10, (10, 1, 10)), Footprint(100, 1, (1, 1, 1))
    # On two lanes a step is nearly as fast as on three: the first pass is the longest.
    assert arrange(41 * 3, small, 8, THREE_PASSES) == Arrangement(3, 2)
    assert arrange(103 * 3, large, 8, THREE_PASSES) == Arrangement(2, 3)
    assert arrange(41 * 3, small, 8, [[10, 10, 10]]) == Arrangement(2, 3)
    assert arrange(41 * 3, small, 8, [[10, 0, 0]]) == Arrangement(5, 1)
    assert arrange(47, Footprint(10, 5, (0,)), 9, ONE_PASS) == Arrangement(3, 1)


def test_passes_on_one_lane_share_its_pool() -> None:
    footprint = Footprint(1, 10, (300, 100, 200), shared=5000, merging=1000)
    assert footprint.of_slot(3) == 1 + 30 + 600
    assert footprint.of_slot(2) == 1 + 20 + 300 + 200
    assert footprint.of_slot(1) == 1 + 10 + 300
    assert footprint.of(Arrangement(4, 2)) == 6000 + 4 * 521
    assert footprint.room_within(8000) == 8000 - 5000 - 1000
    assert footprint.room_within(80_000) == 80_000 - 5000 - 8000
    assert footprint.room_within(footprint.least()) == pytest.approx(footprint.of_slot(1))


def test_arrangements_shrink_to_one_client_on_one_lane() -> None:
    seen, one = [], Arrangement(5, 3)
    while (fewer := one.halved()) is not None:
        seen.append(one := fewer)
    assert seen == [Arrangement(2, 3), Arrangement(1, 3), Arrangement(1, 1)]
    assert Arrangement(0, 0).halved() is None


def test_a_cpu_has_room_for_all() -> None:
    shared = context(False, Precision(torch.float64, torch.float64))
    slot = Slot(shared, BatchRecord(shared.input_shape, torch.float64), 0)
    assert arrangement_that_fits(shared, slot, drawn_steps(), 4) == Arrangement(sys.maxsize, sys.maxsize)
    assert slot.lanes == [], "nothing had to be tried"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (140.0, 128 - 14),  # what is free, less a tenth
        (12.0, 12 - 0.7 - 2 - 1.2),  # of the limit, less what torch holds and what it does not see
        (139.0, 128 - 14),  # others take more of the card than this process may
    ],
)
def test_a_limit_counts_where_it_is_less_than_the_card(
    monkeypatch: pytest.MonkeyPatch, limit: float, expected: float
) -> None:
    on_card = replace(context(), device=torch.device("cuda"))
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (128 * GIB, 140 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2 * GIB)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: limit / 140)
    assert memory_limit(on_card.device) == pytest.approx(limit * GIB, abs=1)
    assert room_for_slots(on_card) == pytest.approx(expected * GIB, rel=1e-6)


def test_a_position_that_meets_one_network_alone_keeps_its_share() -> None:
    shared, steps = context(), drawn_steps()
    assert {len(passes) for passes in steps} == {3}
    smallest = saved_bytes(shared, steps[0][1].architecture) / saved_bytes(shared, shared.largest)
    assert 0 < smallest < 0.5
    assert pool_shares(shared, steps) == [1.0, smallest, 1.0]
    assert pool_shares(context(False), steps) == [1.0] * 3


def tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for one in fields(value):
            yield from tensors_in(getattr(value, one.name))
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)


def test_what_fused_layers_save_is_what_they_hold() -> None:
    """Counted in the list that the backward pass walks; figures by channel are too few to count."""
    shared = context(precision=Precision(torch.float32, torch.float32))
    network, images = shared.method.network, torch.zeros(shared.input_shape, device=DEVICE)
    for architecture in (shared.architectures[0], shared.largest):
        plan = plan_gradients(network, architecture, shared.input_shape)
        rooms = torch.zeros(plan.size, device=DEVICE), torch.zeros(2, COUNTERS, dtype=torch.int32, device=DEVICE)
        layers = FusedLayers(plan, *rooms)
        weights = Layout.of(network.shapes(architecture)).views(torch.ones(network.layout.size, device=DEVICE))
        network.forward(weights, images, architecture, layers)
        elsewhere = {one.untyped_storage().data_ptr() for one in (images, *weights.values())}
        held = {one.untyped_storage().data_ptr(): one for one in tensors_in([layers._passed, layers.output])}
        features = [one for place, one in held.items() if place not in elsewhere and one.dim() == 4]
        assert saved_bytes(shared, architecture) == sum(one.nbytes for one in features)


def test_a_lane_has_room_for_the_planned_parts_of_gradients() -> None:
    shared = context()
    plans = [plan_gradients(shared.method.network, one, shared.input_shape) for one in shared.architectures]
    (rounded, others), gradients = shared.compact_sizes, max(plan.size for plan in plans)
    assert Memory.num_bytes(shared) == 2 * rounded + 4 * (others + gradients + 2 * COUNTERS)
    lane = Memory.of(shared)
    assert Memory.num_bytes(shared) == sum(one.nbytes for one in (lane.low, lane.full, lane.gradients, lane.counters))


def test_what_plain_layers_save_grows_with_the_batch_and_shrinks_with_precision() -> None:
    inputs = torch.zeros(2, 1, 8, 8)
    whole, rounded = context(False, Precision(torch.float32, torch.float32)), context(False)
    saved = saved_bytes_by_autograd(whole, whole.largest, inputs)
    assert saved == pytest.approx(2 * saved_bytes_by_autograd(rounded, rounded.largest, inputs), rel=0.05)
    assert saved_bytes_by_autograd(whole, whole.architectures[0], inputs) < saved
    # Autograd keeps as much as fused layers do, more or less.
    assert 0.5 < saved / (2 * saved_bytes(context(), whole.largest)) < 2


def test_the_estimate_counts_everything_once() -> None:
    shared, size = context(), context().method.network.layout.size
    estimate = estimate_footprint(shared, drawn_steps(), torch.zeros(2, 1, 8, 8), 1000, 5000)
    slot = Slot(shared, BatchRecord(shared.input_shape, torch.bfloat16), 0)
    record = BatchRecord(shared.input_shape, torch.bfloat16).num_bytes
    assert estimate.slot - 1000 == slot.num_bytes - record
    assert estimate.shared == OUTSIDE_TORCH + 5000 + 20 * size
    assert estimate.merging == 21 * size
    assert estimate.pools[0] == estimate.pools[2] > estimate.pools[1]


@pytest.mark.parametrize(("fused", "factor"), [(True, 1.0), (False, 2.0)], ids=["fused layers", "plain layers"])
def test_momentum_takes_a_vector_and_short_batches_as_much_as_graphs_in_plain_layers_alone(
    fused: bool, factor: float
) -> None:
    plain = replace(context(), fused=fused)
    more = replace(plain, sgd=LocalSgd(momentum=0.9), short_batches=True)
    before, after = (
        estimate_footprint(one, drawn_steps(), torch.zeros(2, 1, 8, 8), 1000, 5000) for one in (plain, more)
    )
    slot = Slot(more, BatchRecord(more.input_shape, torch.bfloat16), 0)
    assert after.slot - before.slot == slot.weights.nbytes
    assert slot.num_bytes - Slot(plain, BatchRecord(more.input_shape, torch.bfloat16), 0).num_bytes == (
        slot.weights.nbytes
    )
    assert [one / two for one, two in zip(after.pools, before.pools, strict=True)] == pytest.approx(
        [factor] * 3, rel=1e-4
    )
