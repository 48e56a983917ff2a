from functools import cache

import pytest
import torch

from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.blueprint import CHUNK
from fedfeast.engines.graphs.plain_vectors import PlainVectors
from fedfeast.engines.graphs.workshop import Workshop, can_fuse
from fedfeast.federation import Client, LocalSgd
from fedfeast.methods import Feast
from fedfeast.runs import load_recipe
from fedfeast.runs.assembly import build_without_data

CPU = torch.device("cpu")
DOUBLE = Precision(torch.float64, torch.float64)


@cache
def method() -> Feast:
    built = build_without_data(load_recipe("digits")).method
    assert isinstance(built, Feast)
    return built


def workshop(fused: bool = False) -> Workshop:
    return Workshop(method(), LocalSgd(), DOUBLE, CPU, (16, 1, 8, 8), fused)


def test_kernels_serve_single_precision_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.engines.graphs.workshop.find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    cuda = torch.device("cuda")
    assert can_fuse(Precision(), cuda)
    assert can_fuse(Precision(torch.float32, torch.float32), cuda)
    assert not can_fuse(DOUBLE, cuda)
    assert not can_fuse(Precision(), CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not can_fuse(Precision(), cuda), "too old for bfloat16 products"
    monkeypatch.setattr("fedfeast.engines.graphs.workshop.find_spec", lambda name: None)
    assert not can_fuse(Precision(), cuda), "without Triton there are no kernels"


def test_plain_workshops_index_single_positions() -> None:
    plain = workshop()
    assert isinstance(plain.vectors, PlainVectors)
    assert plain.chunk == 1
    assert {place.parts for one in plain.architectures for place in plain.blueprint(one).plan.places.values()} == {1}


def test_fused_workshops_move_chunks() -> None:
    pytest.importorskip("triton")
    from fedfeast.engines.graphs.kernels.vectors import TritonVectors

    fused = workshop(fused=True)
    assert isinstance(fused.vectors, TritonVectors)
    assert fused.chunk == CHUNK
    parts = {place.parts for one in fused.architectures for place in fused.blueprint(one).plan.places.values()}
    assert max(parts) > 1


@pytest.mark.parametrize("fused", [False, True])
def test_buffers_hold_every_architecture(fused: bool) -> None:
    shared = workshop(fused)
    points = shared.method.operating_points()
    assert list(shared.architectures) == [point.architecture for point in points]
    assert shared.largest == points[-1].architecture
    for architecture in shared.architectures:
        blueprint = shared.blueprint(architecture)
        assert blueprint.layout.size <= blueprint.index.numel() * shared.chunk <= shared.compact_size
        assert blueprint.plan.size <= shared.gradient_size


def test_blueprints_are_drawn_once() -> None:
    shared = workshop()
    assert shared.blueprint(shared.largest) is shared.blueprint(shared.largest)


@pytest.mark.parametrize("fused", [False, True])
def test_a_clients_positions_are_found_once_and_divide_what_it_received(fused: bool) -> None:
    shared = workshop(fused)
    richest, poorest = (method().assign(Client(0, "one", budget, 10)) for budget in (1e12, 3e5))
    active, passive = shared.positions(richest)
    assert shared.positions(richest)[0] is active
    assert shared.positions(poorest)[0] is not active
    assert len(shared.positions(poorest)[0]) < len(active)
    routed = richest.slice_map.index().long() // shared.chunk
    assert sorted(active.tolist() + passive.tolist()) == sorted(set(routed.tolist()))


def test_nothing_is_compiled_on_a_cpu() -> None:
    shared = workshop(fused=True)
    shared.compile_ahead()
    assert shared.setup_seconds < 0.1
