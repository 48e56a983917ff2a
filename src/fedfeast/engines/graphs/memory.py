"""How much device memory clients at work take, and how many at once a device has room for."""

import os
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.gradient_plan import blank_for_head, convolved_alone, shapes_alone
from fedfeast.engines.graphs.programs import Memory
from fedfeast.engines.graphs.slots import Slot, lane_of, slot_bytes
from fedfeast.federation import Pass
from fedfeast.networks import Weights
from fedfeast.networks.layers import EPSILON, Layers
from fedfeast.networks.layout import Layout
from fedfeast.networks.normalisation import by_batch
from fedfeast.units import GIB

RESERVED_SHARE = 0.1  # of the memory, for evaluation and whatever else runs
# The CUDA context, loaded kernels and the graphs themselves: torch's limit does not count them, a card does.
OUTSIDE_TORCH = int(0.7 * GIB)
# What a lane's graphs take against what the largest pass saves: gradients, those by a stage's outputs until the ones by
# its weights are stored all at once, scratch, and gaps between tensors of 56 networks. Fitted to one measurement: 25.2
# GiB for the whole process, as the card counts it, with 10 clients of cifar100-paper and three lanes each after 20
# rounds, with the kernels in CUDA C++ (H200, 2026-11-16).
POOL_FACTOR = 1.6
# Where short batches go through passes of their own, these take as much again as a lane's graphs, from no pool.
SHORT_FACTOR = 2.0


@dataclass(frozen=True)
class Arrangement:
    """How many clients train at once, and on how many lanes each of them at most."""

    slots: int
    lanes: int

    def halved(self) -> "Arrangement | None":
        """Return the next smaller arrangement; None where this is the smallest."""
        if self.slots > 1:
            return Arrangement(self.slots // 2, self.lanes)
        return Arrangement(1, 1) if self.lanes > 1 else None


@dataclass(frozen=True)
class Footprint:
    """Bytes of device memory: of a client's vectors, of a lane's buffers and graphs, of what is there once."""

    slot: int
    lane: int
    pools: tuple[int, ...]  # of graphs, by a pass's position in its step
    shared: int = 0
    merging: int = 0  # once a round, beside all else

    def of_slot(self, num_lanes: int) -> int:
        """Return the bytes of a slot; passes that share a lane share its pool."""
        most = [0] * num_lanes
        for position, pool in enumerate(self.pools):
            lane = lane_of(position, num_lanes)
            most[lane] = max(most[lane], pool)
        return self.slot + num_lanes * self.lane + sum(most)

    def of(self, arrangement: Arrangement) -> int:
        """Return the bytes of a whole run."""
        return self.shared + self.merging + arrangement.slots * self.of_slot(arrangement.lanes)

    def room_within(self, limit: float) -> float:
        """Return the bytes for slots within so many."""
        return limit - self.shared - max(RESERVED_SHARE * limit, self.merging)

    def least(self) -> float:
        """Return the bytes within which one client has room."""
        alone = self.shared + self.of_slot(1)
        return max(alone / (1 - RESERVED_SHARE), alone + self.merging)


def arrange(room: float, footprint: Footprint, wanted: int, steps: Sequence[Sequence[int]]) -> Arrangement:
    """Return the arrangement of slots within so many bytes that keeps the most passes at work.

    Steps are given as the multiply-accumulates of their passes. There is always one slot with one lane.
    """
    most = len(footprint.pools)
    fit = {lanes: max(0, int(room // footprint.of_slot(lanes))) for lanes in range(most, 0, -1)}
    if fit[most] >= wanted:
        return Arrangement(fit[most], most)
    at_work = {lanes: min(wanted, slots) * _side_by_side(steps, lanes) for lanes, slots in fit.items()}
    lanes = max(at_work, key=lambda one: (at_work[one], one))
    return Arrangement(fit[lanes], lanes) if fit[lanes] else Arrangement(1, 1)


def _side_by_side(steps: Sequence[Sequence[int]], num_lanes: int) -> float:
    """Return how many passes of a step are at work on average, where a pass takes as long as it has MACs."""
    longest = 0
    for step in steps:
        loads = [0] * num_lanes
        for position, macs in enumerate(step):
            loads[lane_of(position, num_lanes)] += macs
        longest += max(loads)
    return sum(map(sum, steps)) / longest


def arrangement_that_fits(
    context: GraphContext, first: Slot, steps: Sequence[Sequence[Pass]], wanted: int
) -> Arrangement:
    """Return the arrangement, the new first slot included, that fits a device; its first lane is measured."""
    if context.device.type != "cuda":
        return Arrangement(sys.maxsize, sys.maxsize)
    before = room_for_slots(context)
    first.lanes_for(1)[0].network(context.largest)
    room = room_for_slots(context)
    lane = Memory.num_bytes(context)
    pool = max(0, int(before - room) - lane)
    pools = tuple(int(pool * share * _with_short(context)) for share in pool_shares(context, steps))
    footprint = Footprint(first.num_bytes, lane, pools)
    macs = context.method.network.macs
    costs = [[macs(one.architecture) for one in passes] for passes in steps]
    return arrange(room + first.num_bytes + lane + pool, footprint, wanted, costs)


def estimate_footprint(
    context: GraphContext, steps: Sequence[Sequence[Pass]], inputs: Tensor, record_bytes: int, example_bytes: int
) -> Footprint:
    """Predict the memory of a run without its device, from shapes; a few inputs are for networks without kernels."""
    size, item = context.method.network.layout.size, context.precision.weights.itemsize
    if context.fused_layers:
        saved = POOL_FACTOR * saved_bytes(context, context.largest)
    else:
        saved = POOL_FACTOR * saved_bytes_by_autograd(context, context.largest, inputs)
    return Footprint(
        slot_bytes(context, record_bytes),
        Memory.num_bytes(context),
        tuple(int(saved * share * _with_short(context)) for share in pool_shares(context, steps)),
        OUTSIDE_TORCH + example_bytes + size * (item + 16),  # the global vector, and the sums of answers in float64
        _merging_bytes(context),
    )


def pool_shares(context: GraphContext, steps: Sequence[Sequence[Pass]]) -> list[float]:
    """Return what the graphs of each position's passes take against those of the largest architecture."""
    shares = []
    for position in range(max(map(len, steps))):
        met = {passes[position].architecture for passes in steps if len(passes) > position}
        # A position with one architecture, as that of the smallest, keeps it; any other may meet the largest.
        alone = len(met) == 1 and context.fused_layers
        shares.append(saved_bytes(context, met.pop()) / saved_bytes(context, context.largest) if alone else 1.0)
    return shares


def _with_short(context: GraphContext) -> float:
    """Return what a lane's passes take against its graphs alone."""
    return SHORT_FACTOR if context.has_parts and not context.counts_images else 1.0


def memory_limit(device: torch.device) -> int:
    """Return the bytes of a CUDA device that this process may take."""
    _, total = torch.cuda.mem_get_info(device)
    try:
        share = torch.cuda.get_per_process_memory_fraction(device.index)
    except AttributeError:  # of torch before 2.8, which does not say
        share = 1.0
    return int(share * total)


def room_for_slots(context: GraphContext) -> float:
    """Return the bytes that slots may yet take of a device, with nothing held back for later."""
    device = context.device
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    room = (free - _reserve(context, total)) / _processes_on_a_device()
    limit = memory_limit(device)
    if limit < total:
        taken = OUTSIDE_TORCH + torch.cuda.memory_reserved(device)
        room = min(room, limit - taken - _reserve(context, limit))
    return room


def _reserve(context: GraphContext, limit: int) -> float:
    """Return the bytes to leave free of so many: for evaluation, and for merging."""
    return max(RESERVED_SHARE * limit, _merging_bytes(context))


def _merging_bytes(context: GraphContext) -> int:
    """Return what merging takes: a quotient in float64, a mask, the vector rounded and merged, and the best so far."""
    return context.method.network.layout.size * (9 + 3 * context.precision.weights.itemsize)


def _processes_on_a_device() -> int:
    """Return how many processes that torchrun started here share one device."""
    return -(-int(os.environ.get("LOCAL_WORLD_SIZE", "1")) // torch.cuda.device_count())


def saved_bytes(context: GraphContext, architecture: Hashable) -> int:
    """Return what a forward pass of fused layers keeps for its backward pass."""
    network, counting = context.method.network, _Counting()
    weights = shapes_alone(network.shapes(architecture))
    network.forward(weights, torch.empty(context.input_shape, device="meta"), architecture, counting)
    return counting.elements * context.precision.activations.itemsize


def saved_bytes_by_autograd(context: GraphContext, architecture: Hashable, inputs: Tensor) -> int:
    """Return what a forward pass of plain layers keeps for its backward pass, found on a few inputs of a CPU."""
    network, kept = context.method.network, dict[int, int]()
    layout = Layout.of(network.shapes(architecture))
    flat = torch.full((layout.size,), 0.01)
    leaves = {name: view.detach().requires_grad_() for name, view in layout.views(flat).items()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr():
            item = context.precision.activations.itemsize if tensor.is_floating_point() else tensor.itemsize
            kept[tensor.data_ptr()] = tensor.numel() * item
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = network.forward(leaves, inputs, architecture, by_batch)  # held: what it kept is not freed meanwhile
    assert outputs
    return sum(kept.values()) * context.input_shape[0] // len(inputs)


class _Counting(Layers):
    """Computes shapes alone, and counts what fused layers save."""

    def __init__(self) -> None:
        self.elements = 0

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        return features

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        features = convolved_alone(weights["stem.conv"], images, stride)
        self.elements += 2 * features.numel()  # before and after normalisation
        return features

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        hidden = convolved_alone(weights[f"{name}.conv1"], features, stride)
        out = convolved_alone(weights[f"{name}.conv2"], hidden, 1)
        self.elements += 2 * hidden.numel() + 2 * out.numel()
        if f"{name}.shortcut" in weights:
            pooled = features[:, :, ::stride, ::stride].numel() if stride > 1 else 0
            self.elements += out.numel() + pooled
        return out

    def end(self, features: Tensor) -> Tensor:
        return blank_for_head(features)
