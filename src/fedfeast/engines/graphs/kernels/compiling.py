"""Compiling ahead: every kernel that the passes of some architectures will need, several at a time."""

import os

import torch

from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.fused_layers import FusedLayers, is_fused
from fedfeast.engines.graphs.kernels.launching import Launches, collected_launches, compile_launches
from fedfeast.networks.layers import Weights


def compile_ahead(context: GraphContext) -> None:
    """Compile the kernels of all architectures served, on all cores that this process may use."""
    device = torch.device("cuda", torch.cuda.current_device())
    compile_launches(plan_launches(context), device, threads=len(os.sched_getaffinity(0)))


def plan_launches(context: GraphContext) -> Launches:
    """Return the kinds of launches that passes of the architectures make, found on tensors without memory."""
    activations = context.precision.activations
    images = torch.empty(context.input_shape, dtype=activations, device="meta", memory_format=torch.channels_last)
    with collected_launches() as launches:
        for architecture in context.architectures:
            plan = context.blueprint(architecture).plan
            buffer = torch.empty(plan.size, device="meta")
            layers = FusedLayers(plan, buffer, torch.empty(1, dtype=torch.int32, device="meta"))
            weights = _weights(context.method.network.shapes(architecture), activations)
            outputs = context.method.network.forward(weights, images, architecture, layers)
            by_outputs = [torch.empty_like(output) for output in outputs]
            layers.backward(*torch.autograd.grad(outputs, layers.output, by_outputs))
    return launches


def _weights(shapes: dict[str, tuple[int, ...]], activations: torch.dtype) -> Weights:
    return {
        name: torch.empty(shape, dtype=activations, device="meta", memory_format=torch.channels_last)
        if len(shape) == 4
        else torch.empty(shape, device="meta", requires_grad=not is_fused(name))
        for name, shape in shapes.items()
    }
