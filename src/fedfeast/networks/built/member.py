"""One network of a built family: a value for every choice."""

from collections.abc import Mapping
from dataclasses import dataclass

Number = int | float


@dataclass(frozen=True, repr=False)
class Member:
    """The values of all choices, in the builder's order."""

    items: tuple[tuple[str, Number], ...]

    @classmethod
    def of(cls, values: Mapping[str, Number]) -> "Member":
        """Return the member of these values by name."""
        return cls(tuple(values.items()))

    @property
    def values(self) -> dict[str, Number]:
        """The values by name."""
        return dict(self.items)

    def changed(self, name: str, value: Number) -> "Member":
        """Return the member with another value for one choice."""
        return Member.of({**self.values, name: value})

    def __repr__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items)
