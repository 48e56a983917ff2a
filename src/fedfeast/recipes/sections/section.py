"""What the sections of a recipe have in common."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Integers = Annotated[tuple[int, ...], Field(strict=False)]
Numbers = Annotated[tuple[float, ...], Field(strict=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class Section(BaseModel):
    """A part of a recipe: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def filled_in(table: Any, key: str, values: dict[str, Any]) -> Any:
    """Return a section's table with values for what it leaves out, where it chooses the authors' way."""
    if not isinstance(table, dict) or table.get(key) != "authors":
        return table
    return {**values, **{name: value for name, value in table.items() if value is not None}}
