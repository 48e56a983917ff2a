"""The decorator that makes a constructor elastic: its choices, and what it asks of the data."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, getsourcefile, signature
from itertools import product
from math import isfinite, prod
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedParameter

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.networks.built.member import Member, Number

RESERVED = ("macs", "params", "conv_macs", "fitness_score", "effectiveness", "entropy", "target")  # cache columns


@dataclass(frozen=True, repr=False)
class Builder:
    """A function from choices to a plain module, and the values that each choice may take, least first."""

    function: Callable[..., nn.Module]
    choices: Mapping[str, tuple[Number, ...]] = field(hash=False)
    frozen: tuple[str, ...] = ()  # patterns of parameter names that neither learn nor travel
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # keywords that are settled
    sha256: str = ""  # of the source file that the function was read from

    def __post_init__(self) -> None:
        if not self.choices:
            raise InvalidInput(f"builder {self.name} has no choice: give one, as in elastic(depth=[2, 4]).")
        for name, values in self.choices.items():
            _require_rising(self.name, name, values)
            if name not in self._parameters:
                raise InvalidInput(
                    f"builder {self.name} has no argument {name!r}: add it, or leave it out of elastic({name}=...)."
                )
        for name, one in self._parameters.items():
            needed = one.default is Parameter.empty and one.kind is not Parameter.KEYWORD_ONLY
            if needed and name not in self.choices and name not in self.options:
                raise InvalidInput(
                    f"builder {self.name} has the argument {name!r}, which is no choice: name its values in "
                    "elastic(...), or move it behind a * if the data are to give it."
                )
        for name in self.options:
            if name not in self._parameters or name in self.choices:
                known = ", ".join(one for one in self._parameters if one not in self.choices) or "none"
                raise InvalidInput(f"builder {self.name} has no option {name!r}: its options are {known}.")

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.function.__name__

    @property
    def asks(self) -> tuple[str, ...]:
        """The keywords that it wants of the data, those with a default included."""
        return tuple(
            name
            for name, one in self._parameters.items()
            if one.kind is Parameter.KEYWORD_ONLY and name not in self.choices and name not in self.options
        )

    @property
    def smallest(self) -> Member:
        """The member with the least value of every choice."""
        return Member.of({name: values[0] for name, values in self.choices.items()})

    @property
    def largest(self) -> Member:
        """The member with the greatest value of every choice."""
        return Member.of({name: values[-1] for name, values in self.choices.items()})

    @property
    def num_members(self) -> int:
        """How many networks the choices make."""
        return prod(map(len, self.choices.values()))

    def members(self) -> Iterator[Member]:
        """Yield every member, the last choice changing fastest."""
        for values in product(*self.choices.values()):
            yield Member.of(dict(zip(self.choices, values, strict=True)))

    def __call__(self, *arguments: Any, **keywords: Any) -> nn.Module:
        """Call the function itself."""
        return self.function(*arguments, **{**self.options, **keywords})

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={list(values)}' for name, values in self.choices.items())})"

    def with_choices(self, **choices: Sequence[Number]) -> "Builder":
        """Return the builder with other values for some of its choices."""
        for name in choices:
            if name not in self.choices:
                raise InvalidInput(
                    f"builder {self.name} has no choice {name!r}: its choices are {', '.join(self.choices)}."
                )
        return replace(self, choices={**self.choices, **{name: tuple(values) for name, values in choices.items()}})

    def with_options(self, **options: Any) -> "Builder":
        """Return the builder with some of its other keywords settled, whatever the data say."""
        return replace(self, options={**self.options, **options})

    def keywords(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the builder asks for, as far as the data know it; refuse what it cannot do without."""
        for name in self.asks:
            if name not in known and self._parameters[name].default is Parameter.empty:
                raise InvalidInput(
                    f"builder {self.name} asks for {name!r}, which these data do not have: they know "
                    f"{', '.join(known) or 'nothing'}; ask for one of those, or give {name!r} a default."
                )
        return {**self.options, **{name: known[name] for name in self.asks if name in known}}

    def module(self, member: Member, known: Mapping[str, Any]) -> nn.Module:
        """Return the member as the function makes it."""
        keywords = self.keywords(known)
        try:
            module = self.function(**member.values, **keywords)
        except InvalidInput:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's own code may raise
            raise InvalidInput(
                f"builder {self.name} raised {type(error).__name__} for {member} ({in_one_line(error)}): mend it, "
                "or leave this value out of the choices."
            ) from error
        if not isinstance(module, nn.Module):
            raise InvalidInput(
                f"builder {self.name} returned {type(module).__name__} for {member}: return a torch.nn.Module."
            )
        lazy = next((name for name, one in module.named_parameters() if isinstance(one, UninitializedParameter)), None)
        if lazy is not None:
            raise InvalidInput(f"builder {self.name}: {lazy} belongs to a lazy module: give the module its sizes.")
        return module

    @cached_property
    def _parameters(self) -> dict[str, Parameter]:
        kept = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        return {name: one for name, one in signature(self.function).parameters.items() if one.kind in kept}


def elastic(
    *, frozen: Sequence[str] = (), **choices: Sequence[Number]
) -> Callable[[Callable[..., nn.Module]], Builder]:
    """Make a constructor elastic: each choice lists its values, least first; frozen names parameters by pattern."""
    patterns = (frozen,) if isinstance(frozen, str) else tuple(frozen)

    def decorate(function: Callable[..., nn.Module]) -> Builder:
        for name, values in choices.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise InvalidInput(f"elastic({name}={values!r}) is no list: give the values that it may take.")
        listed = {name: tuple(values) for name, values in choices.items()}
        return Builder(function, listed, patterns, sha256=source_hash(function))

    return decorate


def _require_rising(builder: str, name: str, values: tuple[Number, ...]) -> None:
    place = f"builder {builder}: elastic({name}={list(values)})"
    if name in RESERVED:
        raise InvalidInput(f"{place} has the name of a column of variant caches: rename the choice.")
    if any(isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) for value in values):
        raise InvalidInput(f"{place} holds what is no number: give numbers that the function makes its sizes of.")
    if len(values) < 2:
        raise InvalidInput(f"{place} leaves nothing to choose: give at least two values, or make it a fixed argument.")
    if list(values) != sorted(set(values)):
        raise InvalidInput(f"{place} is not in rising order: list each value once, the least first.")


def source_hash(function: Callable[..., nn.Module]) -> str:
    """Return the SHA-256 of the file that the function stands in, or of its code where it stands in none."""
    file = source_file(function)
    if Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    code = function.__code__.co_code if isinstance(function, FunctionType) else b""
    return hashlib.sha256(str(signature(function)).encode() + code).hexdigest()


def source_file(function: Callable[..., nn.Module]) -> str:
    """Return the file that a function or class stands in, or nothing where it stands in none."""
    try:
        return getsourcefile(function) or ""
    except (TypeError, OSError):  # a class or callable without source
        return ""
