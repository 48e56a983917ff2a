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


def draw_he_normal(layout: Layout, generator: np.random.Generator) -> Tensor:
    """Draw a flat float32 vector: convolutions by He's normal over outgoing channels, heads N(0, 0.01), biases 0."""
    flat = layout.zeros(torch.float32)
    for name, view in layout.views(flat).items():
        if name.endswith(".scale"):
            view.fill_(1.0)
        elif not name.endswith((".shift", ".bias")):
            outgoing, _, *kernel = layout.shapes[name]
            deviation = sqrt(2.0 / (outgoing * np.prod(kernel))) if kernel else 0.01
            drawn = generator.standard_normal(tuple(view.shape), dtype=np.float32)
            view.copy_(torch.from_numpy(drawn).mul_(deviation))
    return flat
