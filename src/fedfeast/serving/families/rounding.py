"""Rounding to float16: a network's files take half the bytes, and it computes in float32 from the rounded values."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks.normalisation import Statistics

LARGEST = torch.finfo(torch.float16).max


def round_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in float16; one with a value that float16 does not have is refused by its name."""
    for name, tensor in tensors.items():
        beyond = tensor[~tensor.half().isfinite()]
        if len(beyond):
            raise InvalidInput(
                f"--float16: the tensor {name} holds {float(beyond[0]):g}, which is beyond float16 (at most "
                f"{LARGEST:g}): leave --float16 out."
            )
    return {name: tensor.half() for name, tensor in tensors.items()}


def round_deployed(deployed: Deployed, statistics: Statistics) -> tuple[Deployed, Statistics]:
    """Return a network and its served statistics with their values rounded to float16, in their own precision."""
    rounded = {name: (_rounded(mean), _rounded(variance)) for name, (mean, variance) in statistics.items()}
    return replace(deployed, flat=_rounded(deployed.flat)), rounded


def _rounded(tensor: Tensor) -> Tensor:
    # By way of float32, as what is written goes.
    return tensor.float().half().to(tensor.dtype)
