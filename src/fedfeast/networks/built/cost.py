"""What one inference of a module costs, counted by torch, and which of its tensors take part in it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.construction import Tensors
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.layers import EPSILON, Layers

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of one example."""

    macs: int
    convolution_macs: int
    draws: bool  # whether training passes drop something
    output_shape: Shape  # (examples, ...)
    unused: tuple[str, ...]  # learning tensors that the output does not depend on


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


def count_cost(
    empty: nn.Module, real: Callable[[], nn.Module], patterns: tuple[str, ...], input_shape: Shape, dtype: torch.dtype
) -> Cost:
    """Count in the module without memory, or in the real one where a forward pass needs values."""
    try:
        return _count(empty, patterns, torch.zeros((1, *input_shape), dtype=dtype, device="meta"))
    except Exception:  # whatever a user's code does with values that are not there
        module = real()
    try:
        return _count(module, patterns, torch.zeros((1, *input_shape), dtype=dtype))
    except InvalidInput:
        raise
    except Exception as error:  # whatever a user's own code may raise
        raise InvalidInput(
            f"an example of shape {list(input_shape)} does not fit the network ({type(error).__name__}: {error}): "
            "give an example that its forward takes, or let the builder ask the data for their shape."
        ) from error


def _count(module: nn.Module, patterns: tuple[str, ...], example: Tensor) -> Cost:
    tensors, held = Tensors.of(module, patterns), dict(module.named_parameters())
    weights = {name: held[name].detach().to(example.device).requires_grad_() for name in tensors.learning}
    frozen = {name: held[name].detach() for name in tensors.frozen}
    skeleton = Skeleton(module, tensors, frozen, torch.float32, example.device)
    # Gradients on, and attention as plain products: fused kernels are counted on some devices and not on others.
    counter = FlopCounterMode(display=False)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        output = skeleton(weights, example, FreeNorms())
    if output.ndim < 1 or output.shape[0] != 1:
        raise InvalidInput(
            f"the network made an output of shape {list(output.shape)} of one example: let its first axis be the batch."
        )
    if not output.requires_grad:
        raise InvalidInput("the network's output depends on none of its parameters: use them in forward.")
    gradients = torch.autograd.grad(output.sum(), list(weights.values()), allow_unused=True)
    unused = tuple(name for name, gradient in zip(weights, gradients, strict=True) if gradient is None)
    flops = counter.get_flop_counts()["Global"]
    convolutions = flops.get(torch.ops.aten.convolution, 0)
    return Cost(sum(flops.values()) // 2, convolutions // 2, skeleton.draws, tuple(output.shape), unused)
