"""A builder's members in one flat vector: an elastic network like any other."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.builder import Builder
from fedfeast.networks.built.construction import FIXED_SEED, Tensors, construct, construct_empty
from fedfeast.networks.built.cost import Cost, Specimen, count_cost, find_unused
from fedfeast.networks.built.member import Member, Number
from fedfeast.networks.built.nesting import find_misfit, refuse_wrong_nesting, require_same_shapes
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout

MOST_SKELETONS = 256  # of one network, for all members, precisions and devices


@dataclass(frozen=True)
class BuiltNetwork:
    """All members of a builder for data of one shape; what would nest wrong is refused when it is made."""

    builder: Builder
    known: Mapping[str, Any] = field(hash=False)  # what the data say, by the keywords a builder may ask for
    input_shape: tuple[int, ...]  # of one example
    input_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        _examine(self)

    @property
    def smallest(self) -> Member:
        """The member with the least value of every choice."""
        return self.builder.smallest

    @property
    def largest(self) -> Member:
        """The member with the greatest value of every choice."""
        return self.builder.largest

    @cached_property
    def layout(self) -> Layout:
        """The layout of the largest member's learning parameters."""
        return Layout.of(self.shapes(self.largest), ALIGNMENT)

    @property
    def draws(self) -> bool:
        """Whether training passes drop a share of some layer's input."""
        return _cost(self, self.largest).draws

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of one example's output, e.g. (classes,)."""
        return _cost(self, self.largest).output_shape[1:]

    def member(self, **values: Number) -> Member:
        """Return a member by its values, those left out at their greatest."""
        member = Member.of({**self.largest.values, **values})
        self.validate(member)
        return member

    def validate(self, architecture: Member) -> None:
        """Raise InvalidInput unless the member's values are among the choices."""
        values, choices = architecture.values, self.builder.choices
        if list(values) != list(choices) or any(values[name] not in choices[name] for name in choices):
            listed = ", ".join(f"{name} in {list(allowed)}" for name, allowed in choices.items())
            raise InvalidInput(f"{architecture} is no member of {self.builder.name}: give {listed}.")

    def envelope(self, architectures: Sequence[Member]) -> Member:
        """Return the member with the greatest value of every choice among these."""
        return _envelope(self, tuple(architectures))

    def columns(self, architecture: Member) -> dict[str, str]:
        """Return a column for every choice."""
        return {name: repr(value) for name, value in architecture.items}

    def read_columns(self, row: Mapping[str, str | None]) -> Member:
        """Return the member of a cache's row; ValueError where a value is none of the choices."""
        values = {}
        for name, allowed in self.builder.choices.items():
            by_text = {repr(value): value for value in allowed}
            if (row[name] or "").strip() not in by_text:
                raise ValueError(f"{name} = {row[name]!r} is none of {', '.join(by_text)}")
            values[name] = by_text[(row[name] or "").strip()]
        return Member.of(values)

    def shapes(self, architecture: Member) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every learning parameter of a member, shared ones once."""
        return dict(_tensors(self, architecture).learning)

    def macs(self, architecture: Member) -> int:
        """Return the multiply-accumulates of one example's inference, as torch counts them."""
        return _cost(self, architecture).macs

    def convolution_macs(self, architecture: Member) -> int:
        """Return all multiply-accumulates: the paper's proxy of training counts convolutions, which not all have."""
        return self.macs(architecture)

    def parameters(self, architecture: Member) -> int:
        """Return the number of learning parameters."""
        return sum(map(prod, self.shapes(architecture).values()))

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Return the largest member as its constructor initialises it, by a seed out of the generator."""
        module = self._construct(self.largest, int(generator.integers(2**63)))
        flat, held = self.layout.zeros(torch.float32), dict(module.named_parameters())
        for name, view in self.layout.views(flat).items():
            view.copy_(held[name].detach())
        return flat

    def learning_names(self) -> dict[str, str | None]:
        """Return every name of the largest member's state dict with the learning parameter that it is, if it is one."""
        module = construct_empty(self.builder, self.largest, self.known)
        first_names = {id(one): name for name, one in module.named_parameters()}
        shared = {name: first_names[id(one)] for name, one in module.named_parameters(remove_duplicate=False)}
        learning = _tensors(self, self.largest).learning
        own = {name: shared.get(name) for name in module.state_dict()}
        return {name: learns if learns in learning else None for name, learns in own.items()}

    def module(self, architecture: Member, weights: Weights) -> nn.Module:
        """Return a plain module of the member as its constructor makes it, with these weights, in float32."""
        # A builder may hand out one module twice, so a copy is filled.
        module = copy.deepcopy(self._construct(architecture)).float().eval()
        frozen = self._frozen(torch.float32, torch.device("cpu"))
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(False)
            parameter.copy_(weights[name] if name in weights else frozen[name])
        return module

    def forward(self, weights: Weights, inputs: Tensor, architecture: Member, layers: Layers) -> tuple[Tensor, ...]:
        """Return what the member's module makes of inputs (batch, ...)."""
        one = next(iter(weights.values()))
        return (self.skeleton(architecture, one.dtype, one.device)(weights, inputs, layers),)

    def skeleton(self, architecture: Member, dtype: torch.dtype, device: torch.device) -> Skeleton:
        """Return the member's module, which passes lend their weights to."""
        return self._skeletons(architecture, dtype, device)

    def fresh_skeleton(self, architecture: Member, dtype: torch.dtype, device: torch.device) -> Skeleton:
        """Return a skeleton of its own, for those who change it."""
        return self._make_skeleton(architecture, dtype, device)

    def _construct(self, member: Member, seed: int = FIXED_SEED) -> nn.Module:
        """Return a real member, which must have the shapes that were examined."""
        module, tensors = construct(self.builder, member, self.known, seed), _tensors(self, member)
        require_same_shapes(self.builder, member, {**tensors.learning, **tensors.frozen}, module)
        return module

    @cached_property
    def _skeletons(self) -> Callable[[Member, torch.dtype, torch.device], Skeleton]:
        return lru_cache(maxsize=MOST_SKELETONS)(self._make_skeleton)

    def _make_skeleton(self, member: Member, dtype: torch.dtype, device: torch.device) -> Skeleton:
        module = self._construct(member)
        return Skeleton(module, _tensors(self, member), self._frozen(dtype, device), dtype, device)

    @cached_property
    def _frozen_values(self) -> dict[tuple[torch.dtype, torch.device], dict[str, Tensor]]:
        return {}

    def _frozen(self, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """Return the values of what does not learn, the same for all members, once per precision and device."""
        names = _tensors(self, self.largest).frozen
        if names and (dtype, device) not in self._frozen_values:
            held = dict(self._construct(self.largest).named_parameters())
            self._frozen_values[dtype, device] = {name: held[name].detach().to(device, dtype) for name in names}
        return self._frozen_values.get((dtype, device), {})


@lru_cache(maxsize=4096)
def _tensors(network: BuiltNetwork, member: Member) -> Tensors:
    """Return a member's shapes, which must be leading slices of the largest's."""
    network.validate(member)
    tensors = Tensors.of(construct_empty(network.builder, member, network.known), network.builder.frozen)
    if member != network.largest:
        misfit = find_misfit(tensors.learning, _tensors(network, network.largest).learning)
        if misfit is not None:
            raise InvalidInput(f"builder {network.builder.name}, {member}: {misfit}; let sizes rise with the choices.")
    return tensors


@lru_cache(maxsize=4096)
def _envelope(network: BuiltNetwork, members: tuple[Member, ...]) -> Member:
    """Return the member of the greatest values, which must hold all of these."""
    builder = network.builder
    envelope = Member.of({name: max(one.values[name] for one in members) for name in builder.choices})
    holds = network.shapes(envelope)
    for one in members:
        misfit = find_misfit(network.shapes(one), holds)
        if misfit is not None:
            raise InvalidInput(f"builder {builder.name}, {one} inside {envelope}: {misfit}; let sizes rise.")
    return envelope


@lru_cache(maxsize=4096)
def _cost(network: BuiltNetwork, member: Member) -> Cost:
    network.validate(member)
    return count_cost(_specimen(network, member))


def _specimen(network: BuiltNetwork, member: Member) -> Specimen:
    builder, known = network.builder, network.known
    return Specimen(
        construct_empty(builder, member, known),
        lambda: construct(builder, member, known, FIXED_SEED),
        builder.frozen,
        network.input_shape,
        network.input_dtype,
    )


@lru_cache(maxsize=64)
def _examine(network: BuiltNetwork) -> None:
    """Refuse what would nest wrong, an example that does not fit, and parameters that nothing depends on."""
    builder, known = network.builder, network.known
    refuse_wrong_nesting(builder, lambda member: construct_empty(builder, member, known))
    for member in (network.smallest, network.largest):
        unused = find_unused(_specimen(network, member))
        if unused:
            raise InvalidInput(
                f"builder {builder.name}, {member}: the output does not depend on {unused[0]}: use it in forward, "
                f"take it out, or freeze it with elastic(frozen=[{unused[0]!r}])."
            )
