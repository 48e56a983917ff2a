"""What one example says of a network's inputs: its shape, its type, and what the data would know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.builder import Builder
from fedfeast.networks.built.built_network import BuiltNetwork

ASSUMED_CLASSES = 10  # where neither the caller nor the example says how many
LEAST_BATCH = 4  # statistics of a batch need several examples


@dataclass(frozen=True, eq=False)
class Fitted:
    """A builder for the example's shape, and a batch to try it with."""

    network: BuiltNetwork
    inputs: Tensor  # (batch, ...), several examples
    assumed: dict[str, Any]  # what the builder asked for and was guessed


def fit(builder: Builder, example: Tensor | NDArray[Any], known: Mapping[str, Any] | None) -> Fitted:
    """Read the array as one example or as a batch of them, whichever the network's forward takes."""
    inputs = _as_inputs(example)
    given = dict(known or {})
    shapes = [tuple(inputs.shape), tuple(inputs.shape[1:])]
    if "shape" in given:
        shapes = [shape for shape in shapes if shape == tuple(given["shape"])]
        if not shapes:
            raise InvalidInput(
                f"the example has the shape {list(inputs.shape)} and the data {list(given['shape'])}: give one example "
                "of the data or a batch of them."
            )
    found: list[BuiltNetwork] = []
    errors: list[InvalidInput] = []
    for shape in shapes:
        if not shape:
            continue
        try:
            found.append(BuiltNetwork(builder, {**_guess(inputs, shape), **given}, shape, inputs.dtype))
        except InvalidInput as error:
            errors.append(error)
    if not found:
        raise errors[0] if errors else InvalidInput("the example is a single number: give one example or a batch.")
    # A forward of nothing but matrix products takes both; then the batch axis is the one it does not carry along.
    network = min(found, key=lambda one: len(one.output_shape))
    batch = inputs if network.input_shape == tuple(inputs.shape[1:]) else inputs[None]
    assumed = {name: network.known[name] for name in builder.asks if name not in given and name in network.known}
    return Fitted(network, _extended(batch), assumed)


def _as_inputs(example: Tensor | NDArray[Any]) -> Tensor:
    """Return floats, or token ids as int64."""
    try:
        inputs = torch.as_tensor(np.ascontiguousarray(example) if isinstance(example, np.ndarray) else example)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"the example is {type(example).__name__}: give a tensor or an array.") from error
    if not inputs.numel() or inputs.is_complex():
        what = "complex numbers" if inputs.is_complex() else "nothing"
        raise InvalidInput(
            f"the example of shape {list(inputs.shape)} holds {what}: give one that the data might hold."
        )
    is_token = inputs.dtype in (torch.int32, torch.int64)
    return inputs.detach().cpu().to(torch.int64 if is_token else torch.float32)


def _guess(inputs: Tensor, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what data of such examples would know."""
    if inputs.dtype == torch.int64:
        vocabulary = int(inputs.max()) + 1
        return {"classes": vocabulary, "vocabulary": vocabulary, "length": shape[-1], "shape": shape}
    return {"classes": ASSUMED_CLASSES, "channels": shape[0], "length": shape[-1], "side": shape[-1], "shape": shape}


def _extended(batch: Tensor) -> Tensor:
    """Return a few examples at least: the given ones, and the same ones rolled."""
    rolled = [batch, *(batch.roll(step, dims=-1) for step in range(1, LEAST_BATCH))]
    if not batch.is_floating_point():
        return torch.cat(rolled)[: max(LEAST_BATCH, len(batch))]
    noise = torch.randn((LEAST_BATCH, *batch.shape[1:]), generator=torch.Generator().manual_seed(0))
    return torch.cat([batch, noise])[: max(LEAST_BATCH, len(batch))]
