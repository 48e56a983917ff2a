"""fedfeast.check: what a builder's family is, and what would go wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.networks.built.builder import Builder
from fedfeast.networks.built.built_network import BuiltNetwork
from fedfeast.networks.built.example import fit
from fedfeast.networks.built.member import Member
from fedfeast.networks.built.nesting import find_misfit
from fedfeast.networks.built.pass_layers import PassNorm
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.built.trial import CPU, Outcome, trial_weights, try_nesting
from fedfeast.networks.normalisation import by_batch
from fedfeast.units import format_macs

MOST_ROWS = 24  # of the table; larger families are shown by their ends and by each choice varied alone


@dataclass(frozen=True)
class MemberCost:
    """One line of the table."""

    member: Member
    macs: int
    parameters: int


@dataclass(frozen=True, repr=False)
class CheckReport:
    """A family that nests: its size, its costs, and what its user should know."""

    builder: str
    num_members: int
    least_macs: int
    greatest_macs: int
    least_parameters: int
    greatest_parameters: int
    members: tuple[MemberCost, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        width = max(len(repr(one.member)) for one in self.members)
        lines = [(repr(one.member), format_macs(one.macs), f"{one.parameters:,}") for one in self.members]
        return "\n".join(
            [
                f"{self.builder} nests: {self.num_members} members, {self.least_macs:,} to {self.greatest_macs:,} "
                f"MACs, {self.least_parameters:,} to {self.greatest_parameters:,} parameters.",
                *(f"  {a:<{width}}  {b:>12}  {c:>12}" for a, b, c in [("member", "MACs", "parameters"), *lines]),
                *(f"note: {note}" for note in self.notes),
            ]
        )

    __repr__ = __str__


def check(
    builder: Builder, example: Tensor | NDArray[Any], known: Mapping[str, Any] | None = None, quiet: bool = False
) -> CheckReport:
    """Try a builder on an example or a batch: nesting, shapes, MACs and gradients; refuse what would go wrong."""
    if not isinstance(builder, Builder):
        given = type(builder).__name__
        raise InvalidInput(f"check takes a builder and got {given}: decorate the function with fedfeast.elastic(...).")
    fitted = fit(builder, example, known)
    network = fitted.network
    inputs = fitted.inputs.double() if fitted.inputs.is_floating_point() else fitted.inputs
    guessed = ", ".join(f"{name} = {value}" for name, value in fitted.assumed.items())
    notes = [f"assumed, since known does not say it: {guessed}."] if guessed else []
    try:
        notes += _try_passes(network, inputs)
        notes += _try_axes(network, inputs)
    except (IndexError, RuntimeError) as error:  # of torch in the user's own forward
        raise InvalidInput(
            f"builder {builder.name} cannot take this example ({type(error).__name__}: {in_one_line(error)}): give "
            "values that its forward takes, such as token ids below the vocabulary."
        ) from error
    notes += _describe_norms(network.fresh_skeleton(network.largest, torch.float64, CPU).module)
    rows = _rows(network)
    report = CheckReport(
        builder.name,
        builder.num_members,
        min(one.macs for one in rows),
        max(one.macs for one in rows),
        min(one.parameters for one in rows),
        max(one.parameters for one in rows),
        rows,
        tuple(notes),
    )
    if not quiet:
        print(report)
    return report


def _rows(network: BuiltNetwork) -> tuple[MemberCost, ...]:
    """Return the members to show, least MACs first; each must lie inside those with one choice greater."""
    builder = network.builder
    members = list(builder.members()) if builder.num_members <= MOST_ROWS else _varied_alone(builder)
    for member in members:
        for name, values in builder.choices.items():
            greater = [value for value in values if value > member.values[name]]
            if greater and builder.num_members <= MOST_ROWS:
                larger = member.changed(name, greater[0])
                misfit = find_misfit(network.shapes(member), network.shapes(larger))
                if misfit is not None:
                    raise InvalidInput(f"builder {builder.name}, {member} against {larger}: {misfit}; let sizes rise.")
    rows = (MemberCost(one, network.macs(one), network.parameters(one)) for one in members)
    return tuple(sorted(rows, key=lambda row: (row.macs, row.parameters)))


def _varied_alone(builder: Builder) -> list[Member]:
    smallest, largest = builder.smallest, builder.largest
    varied = [smallest.changed(name, value) for name, values in builder.choices.items() for value in values]
    return list(dict.fromkeys([smallest, *varied, largest]))


def _try_passes(network: BuiltNetwork, inputs: Tensor) -> list[str]:
    """Train one pass of both ends: gradients must come and be finite, and a pass must repeat itself."""
    notes = []
    flat = trial_weights(network)
    for member in (network.smallest, network.largest):
        skeleton = network.fresh_skeleton(member, torch.float64, CPU)
        views = network.layout.views(flat, network.shapes(member))
        weights = {name: view.detach().requires_grad_() for name, view in views.items()}
        before = {name: buffer.clone() for name, buffer in skeleton.module.named_buffers()}
        output, again = _twice(skeleton, weights, inputs)
        where = f"builder {network.builder.name}, {member}"
        if not torch.equal(output, again):
            raise InvalidInput(
                f"{where}: two passes over the same batch differ, so something in forward draws from torch's global "
                "generator: use nn.Dropout modules, whose draws are named."
            )
        gradients = torch.autograd.grad(output.square().mean(), list(weights.values()), allow_unused=True)
        for name, gradient in zip(weights, gradients, strict=True):
            if gradient is None or not bool(gradient.isfinite().all()):
                what = "no gradient" if gradient is None else "a gradient that is not finite"
                raise InvalidInput(f"{where}: {name} receives {what}: use it in forward, or freeze it by name.")
            if not bool(gradient.any()):
                notes.append(f"{member}: {name} received a gradient of zero on this example.")
        for name, buffer in skeleton.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                notes.append(f"{member}: the buffer {name} changes in a pass, and what it keeps is not federated.")
    notes += _describe_plain_tensors(skeleton.module)
    return notes


def _twice(skeleton: Skeleton, weights: Mapping[str, Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        return skeleton(weights, inputs, by_batch), skeleton(weights, inputs, by_batch)


def _try_axes(network: BuiltNetwork, inputs: Tensor) -> list[str]:
    """Put small members' weights into larger ones, one choice at a time and then all; say which tensor parts them."""
    builder = network.builder
    apart: dict[str, str] = {}
    norms: dict[str, str] = {}
    for axis, values in builder.choices.items():
        for low, high in pairwise(values):
            small, large = builder.largest.changed(axis, low), builder.largest.changed(axis, high)
            outcome = try_nesting(network, small, large, inputs)
            norms.update({name: axis for name in outcome.norms})
            if not outcome.difference:
                continue
            added = _added_layers(network, small, large)
            if added is None:
                raise InvalidInput(_parted(builder, small, large, outcome))
            apart[axis] = (
                f"{axis} adds layers without a residual path ({added}): the network with fewer is no part of the one "
                "with more, so sizes share weights but not functions; add x + layer(x)."
            )
    if builder.choices.keys() - apart.keys():
        # Choices whose layers have no residual path stay the same in both.
        small = Member.of(
            {name: (builder.largest if name in apart else builder.smallest).values[name] for name in builder.choices}
        )
        outcome = try_nesting(network, small, builder.largest, inputs)
        if outcome.difference:
            raise InvalidInput(_parted(builder, small, builder.largest, outcome))
    return [*apart.values()] + [
        f"{name} normalises over a width that changes with {axis}: its statistics differ between sizes, which training "
        "has to even out; a width that is kept avoids it."
        for name, axis in norms.items()
    ]


def _parted(builder: Builder, small: Member, large: Member, outcome: Outcome) -> str:
    return (
        f"builder {builder.name}: with the weights of {small} in {large} and the rest at zero the outputs differ by "
        f"{outcome.difference:.2g}, from {outcome.tensor or 'the output'} on: let a leading slice mean the same in "
        "both (separate q, k and v projections, a fixed width of heads and groups, no mean over channels that change)."
    )


def _added_layers(network: BuiltNetwork, small: Member, large: Member) -> str | None:
    """Return the first tensor that the larger member adds, if it changes no other."""
    shapes, whole = network.shapes(small), network.shapes(large)
    if any(whole[name] != shape for name, shape in shapes.items()):
        return None
    return next((name for name in whole if name not in shapes), None)


def _describe_norms(module: nn.Module) -> list[str]:
    batch = [one.name for one in module.modules() if isinstance(one, PassNorm)]
    kinds = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
    others = sorted({type(one).__name__ for one in module.modules() if isinstance(one, kinds)})
    notes = []
    if batch:
        notes.append(f"batch norms ({len(batch)}) use batch statistics in training and are recalibrated for serving.")
    if others:
        notes.append(f"norms of each example by itself ({', '.join(others)}) need no recalibration.")
    return notes


def _describe_plain_tensors(module: nn.Module) -> list[str]:
    plain = [
        f"{name}.{key}" if name else key
        for name, one in module.named_modules()
        for key, value in vars(one).items()
        if isinstance(value, Tensor)
    ]
    return [f"{name} is a plain tensor, which stays on the CPU: register it as a buffer." for name in plain]
