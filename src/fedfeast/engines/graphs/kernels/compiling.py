"""Compiling ahead: every kernel that the passes of some architectures will need, several at a time."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.fused_layers import FusedLayers
from fedfeast.engines.graphs.gradient_plan import blank_for_head, shapes_alone
from fedfeast.engines.graphs.halo.compiling import Programs, collected_programs, load_programs
from fedfeast.engines.graphs.kernels.launching import Launches, collected_launches, compile_launches
from fedfeast.machine import usable_cores


def compile_ahead(context: GraphContext) -> None:
    """Compile the kernels of all architectures served, on all cores that this process may use."""
    device, threads = torch.device("cuda", torch.cuda.current_device()), usable_cores()
    launches, programs = plan_launches(context)
    with ThreadPoolExecutor(1) as beside:
        # NVRTC needs no Python meanwhile, of which Triton needs much.
        loading = beside.submit(load_programs, programs, device, threads)
        compile_launches(launches, device, threads)
        loading.result()


def plan_launches(context: GraphContext) -> tuple[Launches, Programs]:
    """Return the launches and programs that passes of the architectures need, found on tensors without memory."""
    activations, network = context.precision.activations, context.method.network
    images = torch.empty(context.input_shape, dtype=activations, device="meta", memory_format=torch.channels_last)
    counters = torch.empty(2, 1, dtype=torch.int32, device="meta")
    num_images = torch.empty(1, dtype=torch.int32, device="meta") if context.counts_images else None
    with collected_launches() as launches, collected_programs() as programs:
        for architecture in context.architectures:
            plan = context.plan(architecture)
            layers = _Trunk(plan, torch.empty(plan.size, device="meta"), counters, num_images)
            weights = shapes_alone(network.shapes(architecture), activations)
            network.forward(weights, images, architecture, layers)
            layers.backward(torch.empty_like(layers.output))
    return launches, programs


class _Trunk(FusedLayers):
    """Fused layers whose output the head does not read."""

    def end(self, features: Tensor) -> Tensor:
        """End the trunk; return something for the head."""
        return blank_for_head(super().end(features))
