"""What all lanes of an engine share: the method, the precision, and a blueprint of every architecture seen."""

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec

import torch
from torch import Tensor

from fedfeast.engines.graphs.blueprint import (
    CHUNK,
    Blueprint,
    active_positions,
    chunk_of,
    compact_layout,
    make_blueprint,
    passive_positions,
    tensor_ranges,
)
from fedfeast.engines.graphs.gradient_plan import GradientPlan, plan_gradients, plan_whole_gradients
from fedfeast.engines.graphs.halo.nvrtc import has_compiler
from fedfeast.engines.graphs.kernels.geometry import geometry_of
from fedfeast.engines.graphs.plain_vectors import PlainVectors, Vectors
from fedfeast.engines.graphs.streams import current_stream
from fedfeast.federation import Activations, Assignment, LocalSgd, Method, Pass
from fedfeast.networks import ElasticResNet, Network
from fedfeast.networks.built import BuiltNetwork

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Precision:
    """The types of weights and their gradients, and of activations and theirs."""

    weights: torch.dtype = torch.float32
    activations: torch.dtype = torch.bfloat16
    products: torch.dtype | None = None  # what torch.autocast rounds to inside a network; None: it rounds nothing

    def for_network(self, network: Network) -> "Precision":
        """Return the precision as a network takes it: one's own leaves it to torch.autocast what is rounded."""
        # Choice: the package's ResNets know which of their layers bear bfloat16; a user's module does not say, and
        # torch.autocast keeps norms, softmax and sums whole. Weights, inputs and outputs stay whole too.
        if not isinstance(network, BuiltNetwork) or self.activations == self.weights:
            return self
        return Precision(self.weights, self.weights, self.activations)


@dataclass(eq=False)
class GraphContext:
    """Blueprints and indices, made when first needed and kept."""

    method: Method
    sgd: LocalSgd
    precision: Precision
    device: torch.device
    input_shape: tuple[int, ...]  # (batch, ...)
    fused: bool  # whether there are fused kernels for this precision and device
    in_cuda: bool = False  # whether those in CUDA C++ are among them, for the convolutions that they know
    short_batches: bool = False  # whether some batches have fewer examples than the input shape says
    output_shapes: dict[Hashable, Shapes] = field(default_factory=dict)  # of architectures that ran once
    setup_seconds: float = 0.0
    num_graphs: int = 0
    most_lanes: int = sys.maxsize  # of a slot: passes share them where memory is short
    is_short_of_memory: bool = False

    @property
    def fused_layers(self) -> bool:
        """Whether passes run through fused kernels; they know the elastic network's blocks alone."""
        return self.fused and isinstance(self.method.network, ElasticResNet)

    @property
    def counts_images(self) -> bool:
        """Whether captured passes look up how many examples of a batch count, so that they serve short ones too."""
        return self.fused_layers and self.has_parts

    @property
    def has_parts(self) -> bool:
        """Whether some passes are given fewer examples than the input shape says."""
        return self.short_batches or self.method.takes_parts

    @property
    def is_own(self) -> bool:
        """Whether passes run through a user's own modules."""
        return isinstance(self.method.network, BuiltNetwork)

    @cached_property
    def vectors(self) -> Vectors:
        """How flat vectors are worked on."""
        if not self.fused:
            return PlainVectors()
        from fedfeast.engines.graphs.kernels.vectors import TritonVectors

        return TritonVectors(self.chunk)

    @cached_property
    def chunk(self) -> int:
        """How many neighbouring positions an index entry stands for."""
        network = self.method.network
        return chunk_of(network.layout, [network.shapes(one) for one in self.architectures]) if self.fused else 1

    @cached_property
    def compact_sizes(self) -> tuple[int, int]:
        """The most positions of a compact vector that hold convolutions, and that hold anything else."""
        network, rounded, others = self.method.network, 0, 0
        for architecture in self.architectures:
            layout, num_rounded = compact_layout(network.shapes(architecture))
            rounded, others = max(rounded, num_rounded), max(others, layout.size + CHUNK - num_rounded)
        return rounded, others

    @cached_property
    def gradient_size(self) -> int:
        """The longest gradient buffer of any architecture served."""
        return max(self.plan(architecture).size for architecture in self.architectures)

    @property
    def largest(self) -> Hashable:
        """The architecture with the most multiply-accumulates."""
        return max(self.architectures, key=self.method.network.macs)

    def blueprint(self, architecture: Hashable) -> Blueprint:
        """Return the blueprint of an architecture."""
        if architecture not in self._blueprints:
            plan = self.plan(architecture)
            network = self.method.network
            blueprint = make_blueprint(network, architecture, plan, self.chunk, self.device)
            for size in plan.geometries:  # a capture cannot make them, and hardly an architecture runs before its own
                geometry_of(*size, blueprint.index.device)
            self._blueprints[architecture] = blueprint
            current_stream(self.device).finish()  # other streams will read it without asking
        return self._blueprints[architecture]

    def reached(self, passes: Iterable[Pass]) -> frozenset[str]:
        """Return the names of the tensors that passes go through."""
        return frozenset[str]().union(*(self.blueprint(one.architecture).layout.shapes for one in passes))

    def tensor_ranges(self, index: Tensor) -> Mapping[str, tuple[int, int]]:
        """Return which entries lie in each tensor, of an index that ``positions`` gave."""
        if index not in self._tensor_ranges:
            self._tensor_ranges[index] = tensor_ranges(self.method.network.layout, index, self.chunk)
        return self._tensor_ranges[index]

    def positions(self, assignment: Assignment) -> tuple[Tensor, Tensor]:
        """Return the positions that a client trains, and those that it received but that only decay."""
        slice_map = assignment.slice_map if assignment.slice_map.is_leading else None
        # By shape: a method may make a new map for every client and round.
        key = (assignment.architectures, tuple(slice_map.layout.shapes.items()) if slice_map else None)
        if key not in self._positions:
            network, architectures = self.method.network, assignment.architectures
            active = active_positions(network, architectures, self.chunk, self.device)
            passive = passive_positions(slice_map, active, self.chunk) if slice_map else active[:0]
            current_stream(self.device).finish()
            self._positions[key] = (active, passive)
        return self._positions[key]

    def activated_shares(self, activations: Activations) -> Tensor:
        """Return the share of a client's steps that activated each position of a slot, in float64."""
        size, total = self.method.network.layout.size, sum(activations.values())
        # One entry for each chunk of the vector, and one behind them for pads.
        chunks = torch.zeros(-(-size // self.chunk) + 1, dtype=torch.float64, device=self.device)
        common = frozenset.intersection(*activations) if activations else frozenset()
        always = self._mark(torch.zeros_like(chunks, dtype=torch.bool), common)
        for architectures, count in activations.items():
            chunks.add_(self._mark(always.clone(), architectures - common), alpha=count / total)
        return chunks[:-1].repeat_interleave(self.chunk)[:size]

    def _mark(self, chunks: Tensor, architectures: Iterable[Hashable]) -> Tensor:
        """Mark the chunks that some architectures use; a pad's -1 is the entry behind all."""
        for architecture in architectures:
            chunks.index_fill_(0, self.blueprint(architecture).index.long(), True)
        return chunks

    def forget_strangers(self) -> None:
        """Let go of architectures that training does not come back to; no pass may be under way."""
        known = set(self.architectures)
        for kept in (self._blueprints, self._plans, self.output_shapes):
            for architecture in kept.keys() - known:
                del kept[architecture]
        for key in [key for key in self._positions if not known.issuperset(key[0])]:
            for index in self._positions.pop(key):
                self._tensor_ranges.pop(index, None)

    def plan(self, architecture: Hashable) -> GradientPlan:
        """Return where the partial gradients of an architecture lie."""
        if architecture not in self._plans:
            network = self.method.network
            # Kernels in CUDA C++ are compiled for a shape: too long for one that comes once.
            in_cuda = self.in_cuda and architecture in self.architectures
            self._plans[architecture] = (
                plan_gradients(network, architecture, self.input_shape, in_cuda)
                if self.fused_layers
                else plan_whole_gradients(network, architecture)
            )
        return self._plans[architecture]

    @cached_property
    def architectures(self) -> Sequence[Hashable]:
        """Every architecture that training comes back to."""
        return self.method.trained_architectures()

    @cached_property
    def _plans(self) -> dict[Hashable, GradientPlan]:
        return {}

    @cached_property
    def _blueprints(self) -> dict[Hashable, Blueprint]:
        return {}

    @cached_property
    def _tensor_ranges(self) -> dict[Tensor, Mapping[str, tuple[int, int]]]:
        return {}

    @cached_property
    def _positions(self) -> dict[tuple[tuple[Hashable, ...], Hashable], tuple[Tensor, Tensor]]:
        return {}


def can_fuse(precision: Precision, device: torch.device) -> bool:
    """Return whether the fused kernels serve this precision and device; double precision stays plain."""
    return precision.weights == torch.float32 and has_fused_kernels(device)


def can_run_cuda(precision: Precision, device: torch.device) -> bool:
    """Return whether kernels in CUDA C++ serve this precision and device: they take bfloat16, and a compiler."""
    return precision.activations == torch.bfloat16 and can_fuse(precision, device) and has_compiler()


def has_fused_kernels(device: torch.device) -> bool:
    """Return whether the fused kernels run on a device: CUDA from compute capability 8.0, with Triton."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
