"""The networks of a recipe, and a section for every method."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BeforeValidator, Field, create_model

from fedfeast.federation import Method
from fedfeast.methods import find_method
from fedfeast.networks import Branch
from fedfeast.recipes.sections.section import Integers, Numbers, Section


class NetworkSection(Section):
    """The elastic network: the ResNet's space, or a builder; image size, channels and classes follow from the data."""

    builder: str | None = None  # a shipped one's name, or one's own as file.py:NAME
    # Of the builder's arguments, in place of its own.
    choices: dict[str, Annotated[list[int | float], Field(min_length=1)]] = Field(default_factory=dict)
    options: dict[str, int | float | str | bool] = Field(default_factory=dict)  # of the builder, beside its choices
    weights: str | None = None  # where training begins: a bundle, a run folder or a state dict
    stem_channels: int = 64  # of the first convolution
    stage_channels: Integers = (128, 256, 512, 1024)  # of the stages, at their full width
    depths: Integers = (0, 1, 2, 3, 4, 5, 6, 7, 8)  # blocks beyond a stage's first that it may have
    expansions: Numbers = (0.10, 0.14, 0.18, 0.22, 0.25)  # of a block's inner channels
    widths: Numbers = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of a stage's channels
    stem_stride: int = 1  # 2 halves large images at once
    stage_strides: Integers = (1, 2, 2, 2)  # of each stage's first block
    channel_divisor: int = 8  # numbers of channels are multiples of it
    branch: Branch = "rectified"  # before the addition too, or signed: after it alone
    branch_scale: float = 1.0  # what the last norm of a residual branch starts with, the compared methods' too


class ResNetSection(Section):
    """The network of the compared methods: HeteroFL, ScaleFL, FIARSE, FjORD, FedRolex."""

    stage_channels: Integers = (64, 128, 256, 512)  # of the stages
    blocks: Integers = (2, 2, 2, 2)  # of the stages
    stage_strides: Integers = (1, 2, 2, 2)  # of each stage's first block
    stem_stride: int = 1  # 2 halves large images at once


class VariantsSection(Section):
    """The cache: a packaged name, a CSV file's path, "searched" for the recipe's targets, or a builder's "members"."""

    cache: str = "cifar100-56"  # the networks that are trained and served
    ties: Literal["refuse", "keep"] = "refuse"  # of equal MACs: an error, or all rows count, in the file's order
    score: str | None = None  # by which members are chosen, as file.py:NAME; without it by parameters for their MACs
    # What a search looks for: the fittest networks within these MACs.
    num_targets: int = Field(56, ge=1)
    spacing: Literal["even", "geometric"] = "even"  # of the targets: equal steps, or equal ratios
    least_target_macs: float = Field(25e6, gt=0)  # the first target
    greatest_target_macs: float = Field(600e6, gt=0)  # and the last


def method_section(name: str) -> type[Section]:
    """Return the section of one method: its name and its hyper-parameters with their defaults."""
    return _section_of(name, find_method(name))


@cache
def _section_of(name: str, method: type[Method]) -> type[Section]:
    hints = get_type_hints(method)
    options: dict[str, Any] = {"name": (Literal[name], name)}
    options |= {
        field.name: (Annotated[hints[field.name], BeforeValidator(_as_tuples)], field.default)
        for field in fields(method)  # type: ignore[arg-type]  # every method is a dataclass
        if field.default is not MISSING
    }
    return create_model(f"{name}Section", __base__=Section, **options)


def _as_tuples(value: Any) -> Any:
    """Return a list of a recipe, and lists in it, as tuples."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
