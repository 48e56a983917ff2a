"""Small networks as a user writes them, for tests of every floor."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.networks.built import BuiltNetwork, elastic


class Cnn(nn.Module):
    """Two axes of width, residual blocks, batch norm, dropout and a buffer."""

    def __init__(self, width: int, hidden: int, depth: int, classes: int, channels: int, share: float) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width, eps=1e-3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, width, 1)) for _ in range(depth)
        )
        self.dropout, self.head = nn.Dropout(share), nn.Linear(width, classes)
        self.register_buffer("gain", torch.full((1,), 2.0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            features = features + block(features)
        logits: Tensor = self.head(self.dropout(features.mean(dim=(2, 3)))) * self.gain
        return logits


@elastic(width=[2, 4], hidden=[3, 6], depth=[1, 2])
def cnn(width: int, hidden: int, depth: int, *, classes: int, channels: int, share: float = 0.0) -> nn.Module:
    return Cnn(width, hidden, depth, classes, channels, share)


def built_cnn(side: int = 8, classes: int = 3, channels: int = 1, **options: Any) -> BuiltNetwork:
    """Return the small CNN for square images."""
    builder = cnn.with_options(**options) if options else cnn
    return BuiltNetwork(builder, {"classes": classes, "channels": channels}, (channels, side, side))
