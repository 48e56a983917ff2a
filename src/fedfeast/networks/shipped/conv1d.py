"""A residual network over time whose width and depth are choices: for sensors, and for sound as a spectrogram."""

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import elastic

STAGES = 3  # after each the time is halved
GAINED = 3.0  # about what asinh makes of an ordinary value under a usual gain


class Block(nn.Module):
    """Two convolutions, each normalised before, added to what came in; it starts at adding nothing."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.conv1, self.conv2 = (nn.Conv1d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.dropout = nn.Dropout1d(dropout)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return (batch, width, length)."""
        hidden: Tensor = self.conv1(F.relu(self.norm1(features)))
        added: Tensor = self.conv2(self.dropout(F.relu(self.norm2(hidden))))
        return features + added


class Conv1d(nn.Module):
    """A strided first convolution, stages of blocks, the mean over time, a head."""

    def __init__(self, channels: int, width: int, depth: int, classes: int, dropout: float, gain: float) -> None:
        super().__init__()
        self.gain = gain
        self.stem = nn.Conv1d(channels, width, 5, stride=2, padding=2)
        self.stages = nn.ModuleList(nn.ModuleList(Block(width, dropout) for _ in range(depth)) for _ in range(STAGES))
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (batch, classes) of (batch, channels, length); an image's rows are channels over time."""
        if self.gain:
            inputs = torch.asinh(self.gain * inputs) / GAINED
        features = self.stem(inputs.flatten(1, -2))
        for number, stage in enumerate(self.stages):
            if number:
                features = F.avg_pool1d(features, 2, ceil_mode=True)
            for block in stage:  # type: ignore[attr-defined]
                features = block(features)
        logits: Tensor = self.head(F.relu(self.norm(features)).mean(dim=2))
        return logits


@elastic(width=[16, 24, 32, 48, 64], depth=[1, 2, 3])
def conv1d(
    width: int,
    depth: int,
    *,
    classes: int,
    shape: tuple[int, ...],
    dropout: float = 0.0,
    gain: float = 0.0,
) -> nn.Module:
    """Sensors (channels, length), or a spectrogram (1, bands, time) whose bands become channels.

    A gain, e.g. 30, brings out what is small beside what is large: the trembling of a person who sits.
    """
    if len(shape) < 2:
        raise InvalidInput(
            f"builder conv1d reads channels over time, and an example has the shape {list(shape)}: choose "
            "nested_transformer for tokens, a builder of your own for single numbers."
        )
    return Conv1d(prod(shape[:-1]), width, depth, classes, dropout, gain)
