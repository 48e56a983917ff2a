"""The weights a federation starts from."""

from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fedfeast.networks.layout import Layout


def draw_weights(layout: Layout, generator: np.random.Generator) -> Tensor:
    """Draw a flat float32 vector: torch's default initialisation, norms at scale 1 and shift 0."""
    flat = layout.zeros(torch.float32)
    for name, view in layout.views(flat).items():
        if name.endswith(".scale"):
            view.fill_(1.0)
        elif not name.endswith(".shift"):
            weight = f"{name.removesuffix('.bias')}.weight" if name.endswith(".bias") else name
            bound = 1.0 / sqrt(np.prod(layout.shapes[weight][1:]))
            drawn = generator.random(tuple(view.shape), dtype=np.float32)
            view.copy_(torch.from_numpy(drawn).mul_(2 * bound).sub_(bound))
    return flat
