import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from engines.graphs.halo.emulated import load_emulated
from tiny import SPACE, TORN_SPACE
from torch import Tensor

from fedfeast.engines.graphs import fused_layers
from fedfeast.engines.graphs.fused_layers import FusedLayers, is_fused
from fedfeast.engines.graphs.gradient_plan import GradientPlan, plan_gradients
from fedfeast.engines.graphs.halo import convolution
from fedfeast.engines.graphs.halo.compiling import LOADERS
from fedfeast.engines.graphs.kernels import features, normalisations, products, weight_gradients
from fedfeast.engines.graphs.kernels.features import Norm
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.networks import Branch, ElasticResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOW = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16  # Triton's interpreter has no products of bfloat16


def network(channels: int, divisor: int, stem_stride: int, strides: tuple[int, int]) -> ElasticResNet:
    space = SPACE if divisor == 8 else TORN_SPACE
    return ElasticResNet(replace(space, stem_stride=stem_stride, stage_strides=strides, image_channels=channels))


def signed(one: ElasticResNet) -> ElasticResNet:
    return replace(one, branch="signed")


def drawn_weights(one: ElasticResNet) -> dict[str, Tensor]:
    """Return weights whose scales and shifts differ between channels."""
    generator = named_generator(0, "weights")
    weights = one.layout.views(one.initial_weights(generator))
    for name, values in weights.items():
        if name.endswith((".scale", ".shift")):
            values.copy_(torch.from_numpy(generator.uniform(0.5, 1.5, tuple(values.shape)) - name.endswith(".shift")))
    return {
        name: values.to(DEVICE).contiguous(memory_format=torch.channels_last)
        if values.dim() == 4
        else values.to(DEVICE)
        for name, values in weights.items()
    }


def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape)).float().to(DEVICE)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def make_layers(plan: GradientPlan, rows: int | None = None) -> tuple[FusedLayers, Tensor, Tensor]:
    buffer = torch.full((plan.size,), torch.nan, device=DEVICE)
    counters = torch.zeros(2, COUNTERS, dtype=torch.int32, device=DEVICE)
    num_images = None if rows is None else torch.tensor([rows], dtype=torch.int32, device=DEVICE)
    return FusedLayers(plan, buffer, counters, num_images), buffer, counters


def plain_pass(
    one: ElasticResNet, weights: dict[str, Tensor], images: Tensor, by_output: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    leaves = {name: values.clone().requires_grad_() for name, values in weights.items()}
    (output,) = one.forward(leaves, images, one.space.largest, by_batch)
    gradients = torch.autograd.grad(output, list(leaves.values()), by_output)
    return output.detach(), dict(zip(leaves, gradients, strict=True))


def fused_pass(
    one: ElasticResNet,
    weights: dict[str, Tensor],
    images: Tensor,
    by_output: Tensor,
    activations: torch.dtype,
    in_cuda: bool = False,
    rows: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs and gradients of a pass; of its first images, where only these count."""
    plan = plan_gradients(one, one.space.largest, tuple(images.shape), in_cuda)
    layers, buffer, counters = make_layers(plan, rows)
    held = {
        name: values.to(activations) if values.dim() == 4 else values.clone().requires_grad_(not is_fused(name))
        for name, values in weights.items()
    }
    (output,) = one.forward(held, images.to(activations), one.space.largest, layers)
    heads = [name for name in held if not is_fused(name)]
    *by_heads, by_trunk = torch.autograd.grad(output, [*(held[name] for name in heads), layers.output], by_output)
    layers.backward(by_trunk)
    gradients = dict(zip(heads, by_heads, strict=True))
    for name, place in plan.places.items():
        if is_fused(name):
            whole = place.of(buffer).view(place.parts, -1).sum(0)
            shape = weights[name].shape
            gradients[name] = (
                whole.view(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2) if len(shape) == 4 else whole
            )
    assert not counters.any()
    return output.detach(), {name: gradients[name] for name in weights}


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (network(3, 8, 1, (1, 2)), (4, 3, 8, 8)),
        (network(1, 8, 2, (1, 2)), (3, 1, 7, 9)),
        (network(1, 2, 1, (2, 2)), (2, 1, 5, 7)),
        (signed(network(3, 8, 1, (1, 2))), (4, 3, 8, 8)),
    ],
    ids=["colour", "grey, odd, strided stem", "narrow, strided twice", "signed"],
)
def test_a_pass_equals_plain_autograd(one: ElasticResNet, shape: tuple[int, ...]) -> None:
    weights, images, by_output = drawn_weights(one), drawn("images", shape), drawn("by output", (shape[0], 10))
    passed = fused_pass(one, weights, images, by_output, torch.float32)
    check_whole_precision(passed, plain_pass(one, weights, images, by_output))


Passed = tuple[Tensor, dict[str, Tensor]]


def check_whole_precision(passed: Passed, plain: Passed) -> None:
    (output, gradients), (expected, expected_gradients) = passed, plain
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        unit = float(expected_gradients[name].abs().max())
        assert float((gradient - expected_gradients[name]).abs().max()) <= 1e-4 * unit, name


@pytest.fixture
def _rooms_full_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """New features are no numbers, as those that something else left behind may be."""
    empty = features.empty_features
    for module in (features, normalisations, products, convolution):
        monkeypatch.setattr(module, "empty_features", lambda *of: empty(*of).fill_(torch.nan))


@pytest.mark.usefixtures("_rooms_full_of_traces")
@pytest.mark.parametrize(
    ("one", "shape", "rows"),
    [
        (network(3, 8, 1, (1, 2)), (16, 3, 8, 8), 5),
        (network(1, 8, 2, (1, 2)), (3, 1, 7, 9), 1),
        (network(1, 2, 1, (2, 2)), (3, 1, 5, 7), 2),
        (signed(network(1, 2, 1, (2, 2))), (3, 1, 5, 7), 2),
    ],
    ids=["colour, gradients in parts", "grey, odd, strided stem", "narrow, strided twice", "signed"],
)
def test_a_pass_of_which_few_images_count_equals_plain_autograd(
    one: ElasticResNet, shape: tuple[int, ...], rows: int
) -> None:
    weights, images, by_output = drawn_weights(one), drawn("images", shape), drawn("by output", (shape[0], 10))
    plain = plain_pass(one, weights, images[:rows], by_output[:rows])
    images[rows:], by_output[rows:] = torch.nan, 0.0
    first, second = (fused_pass(one, weights, images, by_output, torch.float32, rows=rows) for _ in range(2))
    check_whole_precision((first[0][:rows], first[1]), plain)
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(gradient, second[1][name]) for name, gradient in first[1].items())


def test_a_full_batch_has_the_same_bits_whether_its_images_are_counted_or_not() -> None:
    one, shape = network(1, 2, 1, (1, 2)), (2, 1, 4, 4)
    given = drawn_weights(one), drawn("images", shape), drawn("by output", (2, 10))
    plain, counted = (fused_pass(one, *given, torch.float32, rows=rows) for rows in (None, 2))
    assert torch.equal(plain[0], counted[0])
    assert all(torch.equal(gradient, counted[1][name]) for name, gradient in plain[1].items())


def check_low_precision(
    activations: torch.dtype, in_cuda: bool, rows: int | None = None, branch: Branch = "rectified"
) -> None:
    one, shape = replace(network(3, 8, 1, (1, 2)), branch=branch), (4, 3, 8, 8)
    weights, images, by_output = drawn_weights(one), drawn("images", shape), drawn("by output", (4, 10))
    expected, expected_gradients = plain_pass(one, weights, images[:rows], by_output[:rows])
    if rows is not None:
        images[rows:], by_output[rows:] = torch.nan, 0.0
    output, gradients = fused_pass(one, weights, images, by_output, activations, in_cuda, rows)
    output = output[:rows]
    assert output.dtype == torch.float32
    assert float((output - expected).norm() / expected.norm()) < 0.02
    got, wanted = (
        torch.cat([values.flatten() for values in each.values()]) for each in (gradients, expected_gradients)
    )
    assert float((got - wanted).norm() / wanted.norm()) < (0.1 if activations == torch.float16 else 0.2)


def test_a_pass_in_low_precision_is_near() -> None:
    check_low_precision(LOW, in_cuda=False)


def in_whole_floats(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel in Triton that computes in float32: its interpreter has no products of bfloat16."""

    def changed(value: Any, dtype: torch.dtype, other: torch.dtype) -> Any:
        if isinstance(value, Tensor):
            return value.to(other) if value.dtype == dtype else value
        if isinstance(value, Norm):
            return replace(value, features=value.features.to(other))
        return tuple(changed(one, dtype, other) for one in value) if isinstance(value, tuple) else value

    def call(*arguments: Any, **named: Any) -> Any:
        whole = changed(arguments, torch.bfloat16, torch.float32)
        named = {name: changed(value, torch.bfloat16, torch.float32) for name, value in named.items()}
        result = kernel(*whole, **named)
        if kernel is products.convolve:  # a feature map and its statistics, which stay whole
            return result[0].bfloat16(), result[1]
        return changed(result, torch.float32, torch.bfloat16)

    return call


@pytest.mark.parametrize(
    ("rows", "branch"),
    [(None, "rectified"), (3, "rectified"), (3, "signed")],
    ids=["all images", "few count", "few count, signed"],
)
def test_a_pass_through_kernels_in_cuda_is_near(
    rows: int | None, branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOADERS, "cpu", load_emulated)
    if DEVICE.type == "cpu":
        for kernel in (products.convolve, products.input_gradient, weight_gradients.weight_gradient):
            monkeypatch.setattr(fused_layers, kernel.__name__, in_whole_floats(kernel))
    check_low_precision(torch.bfloat16, True, rows, branch)


def test_only_the_head_is_left_to_autograd() -> None:
    names = network(3, 8, 1, (1, 2)).layout.shapes
    assert [name for name in names if not is_fused(name)] == ["head.weight", "head.bias"]


def test_a_lone_normalisation_is_refused() -> None:
    one = network(1, 2, 1, (1, 2))
    layers, _, _ = make_layers(plan_gradients(one, one.space.smallest, (2, 1, 4, 4)))
    with pytest.raises(NotImplementedError, match=r"stem\.norm"):
        layers("stem.norm", torch.zeros(2, 4, 2, 2), torch.ones(4), torch.zeros(4))


@pytest.fixture
def _no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collector")
@pytest.mark.parametrize("backward", [False, True], ids=["another pass", "backward"])
def test_activations_are_freed_without_the_garbage_collector(backward: bool) -> None:
    one = network(1, 2, 1, (1, 2))
    architecture, weights = one.space.largest, drawn_weights(one)
    layers, _, _ = make_layers(plan_gradients(one, architecture, (2, 1, 4, 4)))
    stem = layers.stem(weights, drawn("images", (2, 1, 4, 4)), 1)
    projected = layers.block(weights, "stage1.block0", stem, 1)
    plain = layers.end(layers.block(weights, "stage1.block1", projected, 1))
    alive = [weakref.ref(values) for values in (stem, projected, plain)]
    gradient = torch.ones_like(plain)
    del stem, projected, plain
    assert all(one() is not None for one in alive), "the backward pass needs them"
    if backward:
        layers.backward(gradient)
    else:
        layers.stem(weights, drawn("images", (2, 1, 4, 4)), 1)
    assert [one() for one in alive] == [None] * 3


def test_what_the_head_reads_is_a_leaf() -> None:
    one = network(1, 2, 1, (1, 2))
    layers, _, _ = make_layers(plan_gradients(one, one.space.smallest, (2, 1, 4, 4)))
    weights = drawn_weights(one)
    room = layers.block(weights, "stage1.block0", layers.stem(weights, drawn("images", (2, 1, 4, 4)), 1), 1)
    with pytest.raises(AssertionError, match="not ended"):
        assert layers.output is None
    features = layers.end(room)
    assert features is layers.output
    assert features.requires_grad
    assert features.is_leaf


def test_layers_follow_one_another() -> None:
    one = network(1, 2, 1, (1, 2))
    layers, _, _ = make_layers(plan_gradients(one, one.space.smallest, (2, 1, 4, 4)))
    stem = layers.stem(drawn_weights(one), drawn("images", (2, 1, 4, 4)), 1)
    with pytest.raises(AssertionError, match="follow one another"):
        layers.end(stem.clone())
