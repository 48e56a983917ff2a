"""The kernels against plain PyTorch, where chunks of eight fit and where slices tear them."""

from functools import cache

import pytest
import torch
from tiny import SPACE, TORN_SPACE

from fedfeast.engines.graphs.blueprint import (
    PARTS_TO_SIZE,
    Blueprint,
    active_positions,
    chunk_of,
    joined_ranges,
    make_blueprint,
    parts_at_once,
    tensor_ranges,
)
from fedfeast.engines.graphs.gradient_plan import plan_gradients
from fedfeast.engines.graphs.kernels.vectors import TritonVectors
from fedfeast.engines.graphs.plain_vectors import ClientVectors, PlainVectors
from fedfeast.federation import Accumulator, LocalSgd
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
IMAGES = (1024, 1, 8, 8)  # so many that gradients come in parts
PARTIAL = Architecture((1, 0), (0.5, 0.25), (0, 0, 1))
chunks = pytest.mark.parametrize("chunk", [8, 1])


@cache
def network(chunk: int) -> ElasticResNet:
    return ElasticResNet(SPACE if chunk == 8 else TORN_SPACE)


@cache
def blueprint(chunk: int, entries_of: int) -> Blueprint:
    """Return the same blueprint with indices of chunks or of single positions."""
    plan = plan_gradients(network(chunk), PARTIAL, IMAGES)
    return make_blueprint(network(chunk), PARTIAL, plan, entries_of, DEVICE)


def drawn(name: str, size: int) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, name, size).normal(size=size)).float().to(DEVICE)


def padded(chunk: int) -> int:
    return -(-network(chunk).layout.size // 8) * 8


def test_the_two_networks_are_what_they_are_for() -> None:
    for chunk in (8, 1):
        assert chunk_of(network(chunk).layout, [network(chunk).shapes(PARTIAL)]) == chunk


@chunks
@pytest.mark.parametrize("low_type", [torch.float32, torch.bfloat16])
def test_gathering(chunk: int, low_type: torch.dtype) -> None:
    source, size = drawn("source", padded(chunk)), blueprint(chunk, 1).index.numel()
    rooms = []
    for vectors, entries_of in ((TritonVectors(chunk), chunk), (PlainVectors(), 1)):
        low = torch.zeros(size, dtype=low_type, device=DEVICE)
        full = torch.zeros(size, device=DEVICE)
        vectors.gather(source, blueprint(chunk, entries_of), low, full)
        rooms.append((low, full))
    for name, shape in blueprint(chunk, 1).layout.shapes.items():
        got, expected = (blueprint(chunk, 1).weights(low, full)[name] for low, full in rooms)
        assert torch.equal(expected, network(chunk).layout.views(source, {name: shape})[name].to(expected.dtype))
        # Triton's interpreter rounds bfloat16 towards zero.
        interpreted = DEVICE.type == "cpu" and got.dtype == torch.bfloat16
        torch.testing.assert_close(got, expected, rtol=2**-7 if interpreted else 0, atol=0)


@chunks
@pytest.mark.parametrize("num_images", [256, 1024])  # up to 32 parts, and more than are added at once
def test_adding_gradients(chunk: int, num_images: int) -> None:
    plan = plan_gradients(network(chunk), PARTIAL, (num_images, 1, 8, 8))
    parts = [place.parts for place in plan.places.values()]
    if num_images == 256:
        assert {parts_at_once(one) for one in parts} == set(PARTS_TO_SIZE)
    else:
        assert max(parts) > max(PARTS_TO_SIZE)
    partials, before = drawn("partials", plan.size), drawn("gradient", padded(chunk))
    got, expected = before.clone(), before.clone()
    chunked, single = (make_blueprint(network(chunk), PARTIAL, plan, entries_of, DEVICE) for entries_of in (chunk, 1))
    TritonVectors(chunk).add_gradients(got, partials, chunked)
    PlainVectors().add_gradients(expected, partials, single)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    routed = torch.zeros_like(got, dtype=torch.bool)
    routed[LeadingSlices.of(network(chunk).layout, network(chunk).shapes(PARTIAL)).index().long()] = True
    assert torch.equal(got[~routed], before[~routed])


@chunks
@pytest.mark.parametrize(
    ("clip_norm", "momentum", "in_part"),
    [(1e6, 0.0, False), (0.5, 0.0, False), (float("inf"), 0.9, False), (0.5, 0.9, True), (0.5, 0.0, True)],
)
def test_stepping(
    chunk: int, clip_norm: float, momentum: float, in_part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfeast.engines.graphs.kernels.vectors.NORM_PROGRAMS", 4)  # the interpreter is slow
    size, sgd = padded(chunk), LocalSgd(0.1, clip_norm, momentum)
    results = []
    for vectors, entries_of in ((TritonVectors(chunk), chunk), (PlainVectors(), 1)):
        active = active_positions(network(chunk), [PARTIAL], entries_of, DEVICE)
        weights, gradient = drawn("weights", size), drawn("gradient", size)
        # Between tensors there is nothing: a chunk may reach into a pad.
        used = LeadingSlices.of(network(chunk).layout, network(chunk).layout.shapes).index().long()
        pads = torch.ones(size, dtype=torch.bool, device=DEVICE)
        pads[used.to(DEVICE)] = False
        weights[pads], gradient[pads] = 0, 0
        velocity = None
        if momentum:
            velocity = drawn("velocity", size)
            velocity[pads] = 0
        places, ranges = tensor_ranges(network(chunk).layout, active, entries_of), None
        if in_part:
            ranges = joined_ranges(place for name, place in places.items() if not name.endswith("conv2"))
            assert len(ranges) > 1
        vectors.step(ClientVectors(weights, gradient, velocity), active, sgd, 0.3, ranges)
        results.append((weights, gradient, weights if velocity is None else velocity))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_all_programs_share_the_norm() -> None:
    size, sgd = 3 * 1024, LocalSgd(0.0, 0.5)
    weights, gradient = torch.zeros(size, device=DEVICE), drawn("gradient", size)
    expected = -0.3 * 0.5 * gradient / gradient.norm()
    index = torch.arange(size // 8, dtype=torch.int32, device=DEVICE)
    TritonVectors(8).step(ClientVectors(weights, gradient), index, sgd, 0.3, None)
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-7)
    assert not gradient.any()


@chunks
def test_accumulating(chunk: int) -> None:
    layout = network(chunk).layout
    source = drawn("source", padded(chunk))
    slices = LeadingSlices.of(layout, network(chunk).shapes(PARTIAL))
    active = active_positions(network(chunk), [PARTIAL], chunk, DEVICE)
    answers, expected = Accumulator(layout.size, DEVICE), Accumulator(layout.size, DEVICE)
    for weight in (3.0, 5.0):
        TritonVectors(chunk).accumulate(answers.totals, source, active, weight, 0.25)
        expected.add(slices, slices.gather(0.25 * source[: layout.size]), weight)
    routed = slices.index().long()
    torch.testing.assert_close(answers.totals[:, routed], expected.totals[:, routed], rtol=1e-6, atol=1e-9)
    pads = torch.ones(layout.size, dtype=torch.bool, device=DEVICE)
    pads[LeadingSlices.of(layout, layout.shapes).index().long()] = False
    others = (expected.weights == 0) & ~pads
    assert not answers.totals[:, others].any()


def test_accumulating_nothing() -> None:
    totals = torch.zeros(2, 8, dtype=torch.float64, device=DEVICE)
    nothing = torch.zeros(0, dtype=torch.int32, device=DEVICE)
    TritonVectors(8).accumulate(totals, torch.ones(8, device=DEVICE), nothing, 1.0, 1.0)
    assert not totals.any()
