"""Modules of a builder's members: without memory for their shapes, or real ones by a seed."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.builder import Builder
from fedfeast.networks.built.member import Member

FIXED_SEED = 0  # of whatever a member holds that does not learn


@dataclass(frozen=True)
class Tensors:
    """The shapes of a module's parameters by name, shared ones under their first name."""

    learning: dict[str, tuple[int, ...]]
    frozen: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, module: nn.Module, patterns: tuple[str, ...]) -> "Tensors":
        """Divide the parameters: what a pattern names or asks for no gradient is frozen."""
        learning: dict[str, tuple[int, ...]] = {}
        frozen: dict[str, tuple[int, ...]] = {}
        for name, parameter in module.named_parameters():
            is_frozen = not parameter.requires_grad or any(fnmatchcase(name, pattern) for pattern in patterns)
            (frozen if is_frozen else learning)[name] = tuple(parameter.shape)
        return cls(learning, frozen)


def construct_empty(builder: Builder, member: Member, known: Mapping[str, Any]) -> nn.Module:
    """Return a member without memory or initialisation; a real one where its constructor needs values."""
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # loading weights into a module without memory does nothing, and says so
            return builder.module(member, known)
    except InvalidInput:
        return construct(builder, member, known, FIXED_SEED)  # which raises if the builder is to blame


def construct(builder: Builder, member: Member, known: Mapping[str, Any], seed: int) -> nn.Module:
    """Return a real member whose draws follow from the seed; no other draw of the process is touched."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return builder.module(member, known)
