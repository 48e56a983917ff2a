"""What nests silently wrong is refused before anything trains."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from torch import nn
from torch.nn.modules.conv import _ConvNd

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.builder import Builder
from fedfeast.networks.built.construction import Tensors
from fedfeast.networks.built.member import Member

Shapes = dict[str, tuple[int, ...]]
Construct = Callable[[Member], nn.Module]

GATED = "whose one weight holds all gates one after another: write the cell with one nn.Linear per gate"
FUSED = {
    nn.MultiheadAttention: (
        "whose in_proj_weight holds query, key and value one after another: use separate q, k and v projections "
        "(nn.Linear) with F.scaled_dot_product_attention and a fixed head width"
    ),
    nn.LSTM: GATED,
    nn.GRU: GATED,
    nn.RNN: "whose layers share one flat buffer: write the recurrence with nn.Linear layers",
    nn.LSTMCell: GATED,
    nn.GRUCell: GATED,
}


def refuse_wrong_nesting(builder: Builder, construct: Construct) -> None:
    """Compare the least, the whole and every choice varied alone; refuse what is no leading slice, with the fix."""
    known: dict[Member, nn.Module] = {}

    def module_of(member: Member) -> nn.Module:
        if member not in known:
            known[member] = construct(member)
        return known[member]

    for member in (builder.smallest, builder.largest):
        require_same_shapes(builder, member, _shapes(module_of(member)), construct(member))
    _require_frozen(builder, Tensors.of(module_of(builder.largest), builder.frozen))
    for axis, values in builder.choices.items():
        for low, high in pairwise(values):
            changes = False
            for small, large in neighbours(builder, axis, low, high):
                _require_nested(builder, small, module_of(small), large, module_of(large))
                changes |= _shapes(module_of(small)) != _shapes(module_of(large))
            if not changes:
                raise InvalidInput(
                    f"builder {builder.name}: {axis}={low} and {axis}={high} have the same parameters, so the choice "
                    "would change what shared weights mean: let it change a size (for attention keep the width of a "
                    "head and let the heads decide the width of q, k and v), or leave it out of the choices."
                )


def neighbours(builder: Builder, axis: str, low: float, high: float) -> Iterator[tuple[Member, Member]]:
    """Yield the pairs of members that differ in one choice, all others least, then all others greatest."""
    for base in dict.fromkeys((builder.smallest, builder.largest)):
        yield base.changed(axis, low), base.changed(axis, high)


def find_misfit(small: Shapes, large: Shapes) -> str | None:
    """Say which tensor of the smaller one is no leading slice of the larger one's, if any."""
    for name, shape in small.items():
        if name not in large:
            return f"{name} {list(shape)} is missing in the larger one"
        whole = large[name]
        if len(shape) != len(whole):
            return f"{name} has {len(shape)} axes in the smaller one and {len(whole)} in the larger one"
        for axis, (part, full) in enumerate(zip(shape, whole, strict=True)):
            if part > full:
                return f"{name} is {list(shape)} in the smaller one and {list(whole)} in the larger one (axis {axis})"
    return None


def _require_nested(
    builder: Builder, small: Member, small_module: nn.Module, large: Member, large_module: nn.Module
) -> None:
    pair = f"builder {builder.name}, {small} against {large}"
    larger = dict(large_module.named_modules())
    for name, one in small_module.named_modules():
        other = larger.get(name)
        if other is not None:
            _require_unfused(pair, name, one, other)
            _require_same_groups(pair, name, one, other)
    shapes, whole = (Tensors.of(module, builder.frozen) for module in (small_module, large_module))
    misfit = find_misfit({**shapes.learning, **shapes.frozen}, {**whole.learning, **whole.frozen})
    if misfit is not None:
        raise InvalidInput(
            f"{pair}: {misfit}; let every size rise with its choice and keep names the same, since a smaller "
            "member's parameters are leading slices of the larger one's."
        )
    for name, shape in shapes.frozen.items():
        if whole.frozen.get(name) != shape:
            raise InvalidInput(
                f"{pair}: the frozen parameter {name} is {list(shape)} in one and "
                f"{list(whole.frozen.get(name, whole.learning.get(name, ())))} in the other: freeze only what all "
                "members have alike."
            )


def _require_unfused(pair: str, name: str, small: nn.Module, large: nn.Module) -> None:
    for kind, fix in FUSED.items():
        if isinstance(small, kind) and not _own_shapes(small).items() <= _own_shapes(large).items():
            raise InvalidInput(f"{pair}: {name or 'the module'} is nn.{kind.__name__} of a changing size, {fix}.")


def _require_same_groups(pair: str, name: str, small: nn.Module, large: nn.Module) -> None:
    if not isinstance(small, _ConvNd) or not isinstance(large, _ConvNd) or max(small.groups, large.groups) == 1:
        return
    # A leading group is a leading slice only if groups are of one size; depthwise convolutions are such.
    sizes = [(one.in_channels // one.groups, one.out_channels // one.groups) for one in (small, large)]
    if sizes[0] != sizes[1]:
        raise InvalidInput(
            f"{pair}: the convolution {name} has {small.groups} groups of {sizes[0][0]} channels in one and "
            f"{large.groups} of {sizes[1][0]} in the other, so a group would read other channels: keep the channels "
            "of a group the same and let the number of groups grow with the width, or use groups=1."
        )


def require_same_shapes(builder: Builder, member: Member, first: Shapes, again: nn.Module) -> None:
    """Refuse a builder whose next module of a member has other shapes than the first."""
    second = _shapes(again)
    if first != second:
        name = next(name for name in {**first, **second} if first.get(name) != second.get(name))
        raise InvalidInput(
            f"builder {builder.name} is not deterministic: called twice for {member}, parameter {name} is "
            f"{first.get(name)} and then {second.get(name)}; let its sizes follow from its arguments alone."
        )


def _require_frozen(builder: Builder, tensors: Tensors) -> None:
    for pattern in builder.frozen:
        if not any(fnmatchcase(name, pattern) for name in tensors.frozen):
            raise InvalidInput(
                f"builder {builder.name}: frozen={pattern!r} matches no parameter: the parameters are "
                f"{', '.join([*tensors.learning, *tensors.frozen][:8])}, ..."
            )
    if not tensors.learning:
        raise InvalidInput(f"builder {builder.name} has no parameter that learns: freeze fewer of them.")


def _shapes(module: nn.Module) -> Shapes:
    return {name: tuple(one.shape) for name, one in module.named_parameters()}


def _own_shapes(module: nn.Module) -> Shapes:
    return {name: tuple(one.shape) for name, one in module.named_parameters(recurse=False)}
