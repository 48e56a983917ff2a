"""Every field of a recipe as Markdown: its type, range and default from the schema, its meaning from the source."""

import re
from collections.abc import Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from field_comments import field_comments
from markup import cell, heading, table
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedfeast.methods import METHODS
from fedfeast.recipes import Recipe
from fedfeast.recipes.sections import Section, method_section

PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "none"}
BOUNDS = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
CHOOSING = (
    "`method.name` chooses the method, and what else may be set depends on it. `method.preset` takes a set of "
    "options by name, such as `authors` ([baselines](../baselines.md))."
)
COLUMNS = ("field", "value", "default", "meaning")


def recipe_fields() -> str:
    """Return all sections of a recipe, and the options of every method."""
    parts, top = [], []
    for name, field in Recipe.model_fields.items():
        section = type(field.default) if isinstance(field.default, Section) else field.annotation
        if name == "method":
            parts.append(_methods())
        elif isinstance(section, type) and issubclass(section, Section):
            parts.append(_section(name, section, field.default))
        else:
            top.append(_row("", name, field, field_comments(Recipe)))
    return "\n\n".join([heading(2, "The recipe itself"), table(COLUMNS, top), *parts])


@cache
def field_names() -> set[str]:
    """Return every field by its dotted name, those of sections as a whole included."""
    return set(re.findall(r"^\| `([a-z_.]+)` ", recipe_fields(), re.MULTILINE)) | {"method.name", "method.preset"}


def _section(name: str, section: type[BaseModel], usual: object) -> str:
    """Return a section; one that a recipe may leave out has values then, which may differ from its fields' own."""
    rows = []
    for key, field in section.model_fields.items():
        nested = [one for one in _members(field.annotation) if isinstance(one, type) and issubclass(one, Section)]
        rows.append(_row(name, key, field, field_comments(section), getattr(usual, key, None)))
        for inner in nested:
            comments = field_comments(inner)
            rows += [_row(f"{name}.{key}", deep, one, comments) for deep, one in inner.model_fields.items()]
    return "\n\n".join([heading(2, f"`[{name}]`"), section.__doc__ or "", table(COLUMNS, rows)])


def _methods() -> str:
    parts = [heading(2, "`[method]`"), CHOOSING]
    for name, method in METHODS.items():
        comments = field_comments(method)
        fields = {key: one for key, one in method_section(name).model_fields.items() if key != "name"}
        first = (method.__doc__ or "").partition("\n")[0]
        rows = [_row("method", key, field, comments) for key, field in fields.items()]
        parts += [
            heading(3, f'`method.name = "{name}"`'),
            first,
            table(COLUMNS, rows) if rows else "It has no options.",
        ]
    return "\n\n".join(parts)


def _row(
    section: str, name: str, field: FieldInfo, comments: dict[str, str], usual: object = None
) -> tuple[str, str, str, str]:
    dotted = f"{section}.{name}" if section else name
    values = _type_words(field.annotation) + _range(field.metadata)
    default = field.get_default(call_default_factory=True) if usual is None else usual
    shown = "required" if field.is_required() else f"`{toml_words(default)}`"
    return f"`{dotted}`", values, shown, cell(comments.get(name, ""))


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return what a union is of, or the type itself."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for one in get_args(annotation) for inner in _members(one))
    return (annotation,)


def _type_words(annotation: Any) -> str:
    members = _members(annotation)
    if len(members) > 1:
        return ", or ".join(map(_type_words, members))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin is Annotated:
        return _type_words(arguments[0]) + _range(arguments[1:])
    if origin in (tuple, list):
        inner = [one for one in arguments if one is not Ellipsis]
        kinds = dict.fromkeys(map(_type_words, inner))
        return f"list of {' and '.join(f'{kind}s' if kind in PLAIN.values() else f'({kind})' for kind in kinds)}"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "table"
    return PLAIN[annotation]


def _range(metadata: Sequence[Any]) -> str:
    """Return bounds in words; those of pydantic hold metadata of their own."""
    said = []
    for one in [inner for outer in metadata for inner in getattr(outer, "metadata", [outer])]:
        said += [words.format(toml_words(getattr(one, key))) for key, words in BOUNDS.items() if hasattr(one, key)]
    return f", {' '.join(said)}" if said else ""


def toml_words(value: Any) -> str:
    """Return a value as one writes it in a recipe; large numbers in groups of three."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int | float):
        return f"{value:_.0f}" if abs(value) >= 1e4 and value == int(value) else f"{value:g}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_words, value))}]"
    assert isinstance(value, dict)
    return f"{{{', '.join(f'{key} = {toml_words(one)}' for key, one in value.items())}}}"
