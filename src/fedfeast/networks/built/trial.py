"""The numerical trial of nesting: a small member's weights inside a large one, the rest at zero."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedfeast.networks.built.built_network import BuiltNetwork
from fedfeast.networks.built.construction import FIXED_SEED
from fedfeast.networks.built.member import Member
from fedfeast.networks.built.pass_layers import PassNorm
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

TOLERANCE = 1e-9  # of outputs in float64, relative to the greatest
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Outcome:
    """What a trial of two members found."""

    difference: float  # of the outputs, relative; 0 where they agree
    tensor: str | None  # where they part
    norms: tuple[str, ...]  # over a width that changes, here taken over the small one's


@dataclass(eq=False)
class _Calls:
    """What the modules without children received and returned in one pass, in order."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)


def try_nesting(network: BuiltNetwork, small: Member, large: Member, inputs: Tensor) -> Outcome:
    """Compare a member with a larger one that holds its weights and zeros."""
    flat = trial_weights(network)
    shapes = network.shapes(small)
    inside = torch.zeros_like(flat)
    for view, value in zip(
        network.layout.views(inside, shapes).values(), network.layout.views(flat, shapes).values(), strict=True
    ):
        view.copy_(value)
    small_skeleton, large_skeleton = (network.fresh_skeleton(one, torch.float64, CPU) for one in (small, large))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        with _recording(small_skeleton) as small_calls:
            expected = small_skeleton(network.layout.views(flat, shapes), inputs, by_batch)
        norms = _narrow_norms(small_skeleton, large_skeleton, small_calls)
        with _recording(large_skeleton) as large_calls:
            found = large_skeleton(network.layout.views(inside, network.shapes(large)), inputs, by_batch)
    difference = _difference(expected, found)
    tensor = None
    if difference:
        changed = [name for name, shape in shapes.items() if network.shapes(large)[name] != shape]
        tensor = _first_parting(changed, small_calls, large_calls)
    return Outcome(difference, tensor, norms)


def trial_weights(network: BuiltNetwork) -> Tensor:
    """Return weights in float64 of which none is zero: an output that starts at zero would hide what is behind it."""
    flat = network.initial_weights(named_generator(FIXED_SEED, "trial")).double()
    noise = named_generator(FIXED_SEED, "trial noise").normal(scale=0.1, size=flat.shape)
    return flat + torch.from_numpy(noise)


def changing_norms(small: nn.Module, large: nn.Module) -> dict[str, nn.Module]:
    """Return the norms, batch norms aside, whose statistics are over another width in the larger module."""
    larger = dict(large.named_modules())
    return {
        name: one
        for name, one in small.named_modules()
        if "norm" in type(one).__name__.lower()
        and not isinstance(one, PassNorm)
        and not any(True for _ in one.children())
        and name in larger
        and _width(one) != _width(larger[name])
    }


def _width(norm: nn.Module) -> object:
    if isinstance(norm, nn.GroupNorm):
        return norm.num_channels // norm.num_groups
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        return tuple(norm.normalized_shape)
    return [tuple(one.shape) for one in norm.parameters()]


class _NarrowNorm(nn.Module):
    """A norm of the large member over the leading features that the small one has; the others are zero."""

    def __init__(self, large: nn.Module, small: nn.Module, input_shape: torch.Size) -> None:
        super().__init__()
        self.large, self._small, self._input_shape = large, [small], input_shape  # in a list: no module of this one

    def forward(self, features: Tensor) -> Tensor:
        (small,) = self._small
        sizes = {name: one.shape for name, one in small.named_parameters()}
        weights = {name: _leading(getattr(self.large, name), shape) for name, shape in sizes.items()}
        narrow = functional_call(small, weights, (_leading(features, self._input_shape),))
        whole = torch.zeros_like(features)
        _leading(whole, narrow.shape).copy_(narrow)
        return whole


def _narrow_norms(small: Skeleton, large: Skeleton, calls: _Calls) -> tuple[str, ...]:
    norms = changing_norms(small.module, large.module)
    for name, one in norms.items():
        if name in calls.inputs:
            parent, _, own_name = name.rpartition(".")
            owner = large.module.get_submodule(parent)
            owner._modules[own_name] = _NarrowNorm(owner.get_submodule(own_name), one, calls.inputs[name].shape)
    return tuple(norms)


@contextmanager
def _recording(skeleton: Skeleton) -> Iterator[_Calls]:
    """Keep what passes through the modules without children while the block runs."""
    calls = _Calls()

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, received: tuple[Any, ...], returned: Any) -> None:
            if received and isinstance(received[0], Tensor) and isinstance(returned, Tensor):
                calls.inputs[name], calls.outputs[name] = received[0].clone(), returned.clone()

        return hook

    leaves = [(name, one) for name, one in skeleton.module.named_modules() if not any(True for _ in one.children())]
    handles = [one.register_forward_hook(keep(name)) for name, one in leaves]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _first_parting(changed: list[str], small: _Calls, large: _Calls) -> str | None:
    """Return the tensor behind the first module whose outputs differ: its own, or the last before it that changes."""
    last = None
    for name, output in small.outputs.items():
        own = next((tensor for tensor in changed if tensor.rpartition(".")[0] == name), None)
        if name not in large.outputs or _difference(output, large.outputs[name]):
            same_input = name in large.inputs and not _difference(small.inputs[name], large.inputs[name])
            return (own or last) if same_input else (last or own)
        last = own or last
    return last


def _leading(tensor: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    return tensor[tuple(slice(size) for size in shape)]


def _difference(expected: Tensor, found: Tensor) -> float:
    """Return the greatest difference of a tensor from the leading slice of another, relative; 0 within rounding."""
    if expected.ndim != found.ndim or any(
        part > whole for part, whole in zip(expected.shape, found.shape, strict=True)
    ):
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, _leading(found, expected.shape)) else float("inf")
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    difference = float((expected - _leading(found, expected.shape)).abs().max()) if expected.numel() else 0.0
    return 0.0 if difference <= TOLERANCE * (1e-3 + scale) else difference / max(scale, 1e-3)
