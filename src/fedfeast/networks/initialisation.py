"""The weights a federation starts from."""

from math import isfinite, sqrt

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.layout import Layout

BRANCH_SCALE = ".norm2.scale"  # how the name of the scale of a residual branch's last norm ends


def refuse_branch_scale(value: float) -> None:
    """Raise InvalidInput unless a residual branch can start with such a scale."""
    if not (value > 0 and isfinite(value)):
        raise InvalidInput(
            f"network.branch_scale = {value:g}: give a finite number above 0, e.g. 0.2, since a branch that is "
            "rectified has no gradient at 0."
        )


def draw_weights(layout: Layout, generator: np.random.Generator, branch_scale: float = 1.0) -> Tensor:
    """Draw a flat float32 vector: torch's default initialisation, norms at scale 1 (or a branch's) and shift 0."""
    flat = layout.zeros(torch.float32)
    for name, view in layout.views(flat).items():
        if name.endswith(".scale"):
            view.fill_(_first_scale(name, branch_scale))
        elif not name.endswith(".shift"):
            weight = f"{name.removesuffix('.bias')}.weight" if name.endswith(".bias") else name
            bound = 1.0 / sqrt(np.prod(layout.shapes[weight][1:]))
            drawn = generator.random(tuple(view.shape), dtype=np.float32)
            view.copy_(torch.from_numpy(drawn).mul_(2 * bound).sub_(bound))
    return flat


def draw_he_normal(layout: Layout, generator: np.random.Generator, branch_scale: float = 1.0) -> Tensor:
    """Draw a flat float32 vector: convolutions by He's normal over outgoing channels, heads N(0, 0.01), biases 0."""
    flat = layout.zeros(torch.float32)
    for name, view in layout.views(flat).items():
        if name.endswith(".scale"):
            view.fill_(_first_scale(name, branch_scale))
        elif not name.endswith((".shift", ".bias")):
            outgoing, _, *kernel = layout.shapes[name]
            deviation = sqrt(2.0 / (outgoing * np.prod(kernel))) if kernel else 0.01
            drawn = generator.standard_normal(tuple(view.shape), dtype=np.float32)
            view.copy_(torch.from_numpy(drawn).mul_(deviation))
    return flat


def _first_scale(name: str, branch_scale: float) -> float:
    return branch_scale if name.endswith(BRANCH_SCALE) else 1.0
