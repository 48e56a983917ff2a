"""Every family that would nest silently wrong is refused, with the tensor and the fix."""

from collections.abc import Callable
from itertools import count
from threading import Lock

import pytest
import torch
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import BuiltNetwork, elastic
from fedfeast.networks.built.construction import FIXED_SEED, construct
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

RISING = count(3)


class Wrapped(nn.Module):
    """A layer between two fixed ones; recurrent layers and attention return tuples."""

    def __init__(self, layer: nn.Module, before: nn.Module, after: nn.Module, attends: bool = False) -> None:
        super().__init__()
        self.layer, self.before, self.after, self.attends = layer, before, after, attends

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.before(inputs)
        out = self.layer(features, features, features) if self.attends else self.layer(features)
        logits: Tensor = self.after(out[0] if isinstance(out, tuple) else out)
        return logits


def attention(size: int) -> nn.Module:
    return Wrapped(nn.MultiheadAttention(size, 2, batch_first=True), nn.Linear(4, size), nn.Linear(size, 3), True)


def recurrent(kind: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]) -> Callable[[int], nn.Module]:
    def function(size: int) -> nn.Module:
        return Wrapped(kind(4, size, batch_first=True), nn.Identity(), nn.Linear(size, 3))

    return function


def groups(size: int) -> nn.Module:
    return Wrapped(nn.Conv1d(8, 8, 1, groups=size), nn.Linear(4, 4), nn.Linear(4, 3))


def heads(size: int) -> nn.Module:
    return Wrapped(nn.MultiheadAttention(4, size, batch_first=True), nn.Identity(), nn.Linear(4, 3), True)


def shrinking(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12 - size), nn.Linear(12 - size, 3))


def renamed(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), *(nn.Identity() for _ in range(size)), nn.Linear(5, 3))


def other_rank(size: int) -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(torch.zeros(3, 4) if size == 2 else torch.zeros(1, 3, 4))
    return layer


def drifting(size: int) -> nn.Module:
    width = next(RISING)
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 3))


def idle(size: int) -> nn.Module:
    module = nn.Sequential(nn.Linear(4, size), nn.Linear(size, 3))
    module.register_parameter("idle", nn.Parameter(torch.zeros(size)))
    return module


def two_outputs(size: int) -> nn.Module:
    return nn.LSTM(4, 3, num_layers=size, batch_first=True)


def lazy(size: int) -> nn.Module:
    return nn.LazyLinear(size)


class Viewing(nn.Linear):
    """Reads its weight as a plain row of numbers, which a slice is not."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight.view(-1).sum() + self.bias.sum()


def viewing(size: int) -> nn.Module:
    return Viewing(4, size)


class Locked(nn.Linear):
    """Holds what cannot be copied."""

    def __init__(self, size: int) -> None:
        super().__init__(4, size)
        self.lock = Lock()


def alpha_dropout(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, size), nn.AlphaDropout(0.1), nn.Linear(size, 3))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (attention, r"layer is nn.MultiheadAttention of a changing size, .*separate q, k and v"),
        (recurrent(nn.LSTM), "layer is nn.LSTM of a changing size.*one nn.Linear per gate"),
        (recurrent(nn.GRU), "layer is nn.GRU of a changing size"),
        (recurrent(nn.RNN), "layer is nn.RNN of a changing size"),
        (groups, "convolution layer has 2 groups of 4 channels in one and 4 of 2 in the other"),
        (heads, "size=2 and size=4 have the same parameters.*keep the width of a head"),
        (shrinking, r"0.weight is \[10, 4\] in the smaller one and \[8, 4\] in the larger one \(axis 0\)"),
        (renamed, r"3.weight \[3, 5\] is missing in the larger one"),
        (other_rank, "weight has 2 axes in the smaller one and 3 in the larger one"),
        (drifting, "is not deterministic: called twice"),
        (idle, "does not depend on idle: use it in forward"),
        (two_outputs, "forward returned tuple: return one tensor"),
        (lazy, "lazy module"),
        (viewing, "use reshape, not view, on parameters"),
        (Locked, "cannot be copied .*keep no files, locks or streams"),
        (alpha_dropout, "module 1 is nn.AlphaDropout.*use nn.Dropout"),
    ],
)
def test_it_is_refused(function: Callable[[int], nn.Module], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        BuiltNetwork(elastic(size=[2, 4])(function), {}, (8, 4))


def test_an_example_that_does_not_fit_is_refused() -> None:
    builder = elastic(size=[2, 4])(lambda size: nn.Sequential(nn.Linear(4, size), nn.Linear(size, 3)))
    with pytest.raises(InvalidInput, match=r"example of shape \[5\] does not fit the network"):
        BuiltNetwork(builder, {}, (5,))


@pytest.mark.parametrize(
    ("frozen", "message"), [(["body.*"], "frozen='body.\\*' matches no parameter"), (["*"], "no parameter that learns")]
)
def test_frozen_patterns_must_fit(frozen: list[str], message: str) -> None:
    builder = elastic(size=[2, 4], frozen=frozen)(lambda size: nn.Sequential(nn.Linear(4, size), nn.Linear(size, 3)))
    with pytest.raises(InvalidInput, match=message):
        BuiltNetwork(builder, {}, (4,))


def test_a_frozen_parameter_is_the_same_in_all_members() -> None:
    builder = elastic(size=[2, 4], frozen="0.weight")(
        lambda size: nn.Sequential(nn.Linear(4, size), nn.Linear(size, 3))
    )
    with pytest.raises(InvalidInput, match=r"the frozen parameter 0.weight is \[2, 4\] in one and \[4, 4\]"):
        BuiltNetwork(builder, {}, (4,))


@pytest.mark.parametrize(
    "function",
    [
        lambda size: nn.Sequential(nn.Conv1d(3, size, 1), nn.Conv1d(size, size, 3, groups=size)),
        lambda size: nn.Sequential(nn.Conv1d(3, 4 * size, 1), nn.Conv1d(4 * size, 4 * size, 3, groups=size)),
    ],
    ids=["depthwise", "groups of one size"],
)
def test_groups_that_keep_their_channels_nest(function: Callable[[int], nn.Module]) -> None:
    network = BuiltNetwork(elastic(size=[2, 4])(function), {}, (3, 5))
    assert network.macs(network.smallest) < network.macs(network.largest)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.LSTM(4, 4, num_layers=2, batch_first=True),
        lambda: nn.GRU(4, 4, batch_first=True),
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
    ],
    ids=["LSTM", "GRU", "attention"],
)
def test_fused_layers_of_one_size_train(layer: Callable[[], nn.Module]) -> None:
    def function(size: int) -> nn.Module:
        made = layer()
        head = nn.Sequential(nn.Linear(4, size), nn.Linear(size, 3))
        return Wrapped(made, nn.Identity(), head, isinstance(made, nn.MultiheadAttention))

    network = BuiltNetwork(elastic(size=[2, 4])(function), {}, (8, 4))
    flat, inputs = network.initial_weights(named_generator(0)).double(), torch.randn(2, 8, 4, dtype=torch.float64)
    views = network.layout.views(flat, network.shapes(network.smallest))
    weights = {name: view.detach().requires_grad_() for name, view in views.items()}
    module = construct(network.builder, network.smallest, {}, FIXED_SEED).double()
    module.load_state_dict(views)
    (outputs,), expected = network.forward(weights, inputs, network.smallest, by_batch), module(inputs)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    ours = torch.autograd.grad(outputs.square().sum(), list(weights.values()))
    theirs = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert network.macs(network.smallest) > 8 * (2 * 4 + 3 * 2) + 8 * 4 * 4
