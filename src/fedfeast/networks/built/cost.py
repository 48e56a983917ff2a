"""What one inference of a module costs, counted by torch, and which of its tensors take part in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.networks.built.construction import Tensors
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.layers import EPSILON, Layers

Shape = tuple[int, ...]
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of one example."""

    macs: int
    draws: bool  # whether training passes drop something
    output_shape: Shape  # (examples, ...)


class FreeNorms(Layers):
    """Norms cost nothing, and need no second example."""

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Scale and shift alone."""
        if scale is None or shift is None:
            return features
        shape = (-1, *(1 for _ in features.shape[2:]))
        return features * scale.view(shape) + shift.view(shape)


@dataclass(frozen=True, eq=False)
class Specimen:
    """A member to be measured: without memory, and a real one where a forward pass needs values."""

    empty: nn.Module
    real: Callable[[], nn.Module]
    patterns: tuple[str, ...]  # of frozen parameters
    input_shape: Shape
    input_dtype: torch.dtype


def count_cost(specimen: Specimen) -> Cost:
    """Count one inference."""
    return _measured(specimen, _count)


def find_unused(specimen: Specimen) -> tuple[str, ...]:
    """Return the learning tensors that the output does not depend on."""
    return _measured(specimen, _unused)


def _measured(specimen: Specimen, measure: Callable[["_Pass"], Measured]) -> Measured:
    shape, dtype, input_shape = (1, *specimen.input_shape), specimen.input_dtype, specimen.input_shape
    try:
        return measure(_Pass(specimen.empty, specimen.patterns, torch.zeros(shape, dtype=dtype, device="meta")))
    except Exception:  # whatever a user's code does with values that are not there
        module = specimen.real()
    try:
        return measure(_Pass(module, specimen.patterns, torch.zeros(shape, dtype=dtype)))
    except InvalidInput:
        raise
    except Exception as error:  # whatever a user's own code may raise
        raise InvalidInput(
            f"an example of shape {list(input_shape)} does not fit the network ({type(error).__name__}: "
            f"{in_one_line(error)}): give an example that its forward takes, let the builder ask the data for their "
            "shape, and use reshape, not view, on parameters."
        ) from error


class _Pass:
    """One example through a module."""

    def __init__(self, module: nn.Module, patterns: tuple[str, ...], example: Tensor) -> None:
        tensors, held = Tensors.of(module, patterns), dict(module.named_parameters())
        self.weights = {name: _as_slice(held[name], example.device).requires_grad_() for name in tensors.learning}
        frozen = {name: held[name].detach() for name in tensors.frozen}
        self.skeleton = Skeleton(module, tensors, frozen, torch.float32, example.device)
        self._example = example

    def output(self) -> Tensor:
        """Return (1, ...)."""
        with torch.enable_grad():
            output = self.skeleton(self.weights, self._example, FreeNorms())
        if output.ndim < 1 or output.shape[0] != 1:
            raise InvalidInput(
                f"the network made an output of shape {list(output.shape)} of one example: let its first axis be the "
                "batch."
            )
        if not output.requires_grad:
            raise InvalidInput("the network's output depends on none of its parameters: use them in forward.")
        return output


def _count(one: _Pass) -> Cost:
    counter = FlopCounterMode(display=False)
    # Gradients on, and attention as plain products: fused kernels are counted on some devices and not on others.
    with sdpa_kernel(SDPBackend.MATH), counter:
        output = one.output()
    flops = counter.get_flop_counts()["Global"]
    return Cost(sum(flops.values()) // 2, one.skeleton.draws, tuple(output.shape))


def _unused(one: _Pass) -> tuple[str, ...]:
    gradients = torch.autograd.grad(one.output().sum(), list(one.weights.values()), allow_unused=True)
    return tuple(name for name, gradient in zip(one.weights, gradients, strict=True) if gradient is None)


def _as_slice(parameter: Tensor, device: torch.device) -> Tensor:
    """Return a copy that lies in memory as a member's tensors do: as a leading slice of a larger one."""
    larger = torch.empty([size + 1 for size in parameter.shape], dtype=parameter.dtype, device=device)
    part = larger[tuple(slice(size) for size in parameter.shape)]
    return part.copy_(parameter.detach())
