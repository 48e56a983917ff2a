from dataclasses import replace
from functools import cache

import pytest
import torch

from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.blueprint import CHUNK, Blueprint
from fedfeast.engines.graphs.context import GraphContext, can_fuse, can_run_cuda
from fedfeast.engines.graphs.plain_vectors import PlainVectors
from fedfeast.federation import Assignment, Client, LocalSgd
from fedfeast.methods import Feast
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.routing import LeadingSlices

CPU = torch.device("cpu")
DOUBLE = Precision(torch.float64, torch.float64)


@cache
def method() -> Feast:
    built = outline(load_recipe("digits")).method
    assert isinstance(built, Feast)
    return built


def context(fused: bool = False) -> GraphContext:
    return GraphContext(method(), LocalSgd(), DOUBLE, CPU, (16, 1, 8, 8), fused)


def test_kernels_serve_single_precision_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.engines.graphs.context.find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    cuda = torch.device("cuda")
    assert can_fuse(Precision(), cuda)
    assert can_fuse(Precision(torch.float32, torch.float32), cuda)
    assert not can_fuse(DOUBLE, cuda)
    assert not can_fuse(Precision(), CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not can_fuse(Precision(), cuda), "too old for bfloat16 products"
    monkeypatch.setattr("fedfeast.engines.graphs.context.find_spec", lambda name: None)
    assert not can_fuse(Precision(), cuda), "without Triton there are no kernels"


@pytest.mark.parametrize("has_compiler", [False, True])
def test_kernels_in_cuda_take_bfloat16_and_a_compiler(monkeypatch: pytest.MonkeyPatch, has_compiler: bool) -> None:
    monkeypatch.setattr("fedfeast.engines.graphs.context.find_spec", lambda name: name)
    monkeypatch.setattr("fedfeast.engines.graphs.context.has_compiler", lambda: has_compiler)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    cuda = torch.device("cuda")
    assert can_run_cuda(Precision(), cuda) == has_compiler
    assert not can_run_cuda(Precision(torch.float32, torch.float32), cuda)
    assert not can_run_cuda(DOUBLE, cuda)
    assert not can_run_cuda(Precision(), CPU)


def test_plain_contexts_index_single_positions() -> None:
    plain = context()
    assert isinstance(plain.vectors, PlainVectors)
    assert plain.chunk == 1
    assert {place.parts for one in plain.architectures for place in plain.blueprint(one).plan.places.values()} == {1}


def test_fused_contexts_move_chunks() -> None:
    pytest.importorskip("triton")
    from fedfeast.engines.graphs.kernels.vectors import TritonVectors

    fused = context(fused=True)
    assert isinstance(fused.vectors, TritonVectors)
    assert fused.chunk == CHUNK
    parts = {place.parts for one in fused.architectures for place in fused.blueprint(one).plan.places.values()}
    assert max(parts) > 1


def assert_holds(shared: GraphContext, blueprint: Blueprint) -> None:
    rounded, others = shared.compact_sizes
    length = blueprint.index.numel() * shared.chunk
    assert blueprint.layout.size <= length
    assert blueprint.num_rounded <= rounded
    assert length - blueprint.num_rounded <= others


@pytest.mark.parametrize("fused", [False, True])
def test_buffers_hold_every_architecture(fused: bool) -> None:
    shared = context(fused)
    points = shared.method.operating_points()
    assert list(shared.architectures) == [point.architecture for point in points]
    assert shared.largest == points[-1].architecture
    for architecture in shared.architectures:
        blueprint = shared.blueprint(architecture)
        assert_holds(shared, blueprint)
        assert blueprint.plan.size <= shared.gradient_size


def test_blueprints_are_drawn_once() -> None:
    shared = context()
    assert shared.blueprint(shared.largest) is shared.blueprint(shared.largest)


@pytest.mark.parametrize("fused", [False, True])
def test_a_clients_positions_are_found_once_and_divide_what_it_received(fused: bool) -> None:
    shared = context(fused)
    richest, poorest = (method().assign(Client(0, "one", budget, 10)) for budget in (1e12, 3e5))
    active, passive = shared.positions(richest)
    assert shared.positions(richest)[0] is active
    assert shared.positions(poorest)[0] is not active
    assert len(shared.positions(poorest)[0]) < len(active)
    routed = richest.slice_map.index().long() // shared.chunk
    assert sorted(active.tolist() + passive.tolist()) == sorted(set(routed.tolist()))


def test_equal_slices_share_their_positions() -> None:
    """A method may make a new map for every client and round; a map's positions are tens of megabytes."""
    shared, one = context(), method().assign(Client(0, "one", 1e6, 10))
    again = replace(one, slice_map=LeadingSlices.of(one.slice_map.source, one.slice_map.layout.shapes))
    assert again.slice_map is not one.slice_map
    assert shared.positions(again)[0] is shared.positions(one)[0]
    wider = method().assign(Client(0, "one", 1e12, 10)).slice_map
    active, passive = shared.positions(replace(one, slice_map=wider))
    assert torch.equal(active, shared.positions(one)[0])
    assert len(passive) > len(shared.positions(one)[1]), "the same networks in a larger envelope"


def drawing_context(fused: bool = False) -> tuple[GraphContext, Assignment, Assignment]:
    """A context of networks drawn at random, a client that trains a known one and a client that does not."""
    settings = {"method.name": "superfednas", "method.constrained": False}
    drawing = outline(load_recipe("digits", settings)).method
    cohort = [Client(index, "one", 1e12, 10) for index in range(4)]
    planned, _ = drawing.plan_round(drawing.initial_state(), torch.zeros(1), cohort, 0, named_generator(0))
    known = [one for one in planned if one.architectures[0] in drawing.trained_architectures()]
    strange = [one for one in planned if one.architectures[0] not in drawing.trained_architectures()]
    assert (len(known), len(strange)) == (2, 2), "the largest, the smallest, two drawn"
    return GraphContext(drawing, LocalSgd(), DOUBLE, CPU, (16, 1, 8, 8), fused), known[0], strange[0]


def test_only_networks_that_training_comes_back_to_are_remembered() -> None:
    shared, known, strange = drawing_context()
    kept, forgotten = known.architectures[0], strange.architectures[0]
    before = {
        one: (shared.blueprint(one), shared.positions(each)[0]) for one, each in ((kept, known), (forgotten, strange))
    }
    shared.output_shapes.update({kept: ((16, 10),), forgotten: ((16, 10),)})
    assert shared.blueprint(forgotten) is before[forgotten][0], "within a round it is drawn once"
    shared.forget_strangers()
    assert list(shared.output_shapes) == [kept]
    assert shared.blueprint(kept) is before[kept][0]
    assert shared.positions(known)[0] is before[kept][1]
    assert shared.blueprint(forgotten) is not before[forgotten][0]
    assert shared.positions(strange)[0] is not before[forgotten][1]
    assert torch.equal(shared.blueprint(forgotten).index, before[forgotten][0].index)
    assert torch.equal(shared.positions(strange)[0], before[forgotten][1])


@pytest.mark.parametrize("fused", [False, True])
def test_buffers_hold_drawn_networks_too(fused: bool) -> None:
    shared, _, strange = drawing_context(fused)
    blueprint = shared.blueprint(strange.architectures[0])
    assert_holds(shared, blueprint)
    assert blueprint.plan.size <= shared.gradient_size
    assert shared.largest == shared.method.network.space.largest  # type: ignore[attr-defined]


def test_a_client_without_a_leading_slice_trains_all_it_holds() -> None:
    rolling = outline(load_recipe("digits", {"method.name": "fedrolex"})).method
    shared = GraphContext(rolling, LocalSgd(), DOUBLE, CPU, (16, 1, 8, 8), False)
    flat = torch.zeros(1)
    cohort = [Client(0, "one", 1e6, 10), Client(1, "another", 1e6, 10)]
    rounds = [rolling.plan_round({}, flat, cohort, index, named_generator(0))[0] for index in (3, 4)]
    active, passive = shared.positions(rounds[0][0])
    assert len(passive) == 0
    level = rounds[0][0].architectures[0]
    leading = LeadingSlices.of(rolling.network.layout, rolling.network.shapes(level))
    assert torch.equal(active, leading.index()), "where a slot holds it"
    assert shared.positions(rounds[0][1])[0] is active
    assert shared.positions(rounds[1][0])[0] is active, "wherever in the global vector it comes from"
