"""A network taken out of a trained supernet: this file and the two beside it need torch alone.

from model import load
model = load("path/of/this/folder")
logits = model(images)          # uint8 images (batch, channels, height, width)
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Block(nn.Module):
    """Two 3x3 convolutions, rectified before the addition too; the first block of a stage projects its shortcut."""

    def __init__(self, incoming: int, middle: int, width: int, stride: int, projects: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, middle, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.projects = projects
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width)

    def forward(self, features: Tensor) -> Tensor:
        """Return the block's features."""
        hidden = F.relu(self.norm1(self.conv1(features)))
        hidden = F.relu(self.norm2(self.conv2(hidden)))
        if self.projects:
            if self.stride > 1:
                features = F.avg_pool2d(features, self.stride, ceil_mode=True)
            features = self.shortcut_norm(self.shortcut(features))
        return F.relu(hidden + features)


class Stem(nn.Module):
    """The first convolution."""

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the stem's features."""
        return F.relu(self.norm(self.conv(images)))


class Model(nn.Module):
    """The network of a manifest's ``network`` table; takes raw pixels and normalises them itself."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: dict[str, Any]) -> None:
        super().__init__()
        channels = network["image_channels"]
        for name in ("mean", "deviation"):
            values = torch.tensor(network[name]).reshape(1, channels, 1, 1)
            self.register_buffer(name, values, persistent=False)
        incoming = network["stem"]["channels"]
        self.stem = Stem(channels, incoming, network["stem"]["stride"])
        self.stages = len(network["stages"])
        for number, stage in enumerate(network["stages"], start=1):
            blocks = nn.ModuleDict()
            for block in range(stage["blocks"]):
                stride = stage["stride"] if block == 0 else 1
                blocks[f"block{block}"] = Block(incoming, stage["middle"], stage["channels"], stride, block == 0)
                incoming = stage["channels"]
            self.add_module(f"stage{number}", blocks)
        self.head = nn.Linear(incoming, network["classes"])

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch, classes) of images with pixels from 0 to 255."""
        return self.classify((images.to(self.mean.dtype) / 255 - self.mean) / self.deviation)

    def classify(self, normalised: Tensor) -> Tensor:
        """Return the logits of images that are normalised already."""
        features = self.stem(normalised)
        for number in range(1, self.stages + 1):
            for block in self.get_submodule(f"stage{number}").children():
                features = block(features)
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits


def load(folder: str | Path) -> Model:
    """Return the folder's network, ready to predict."""
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    model = Model(manifest["network"])
    loaded = model.load_state_dict(read_weights(Path(folder) / "weights.safetensors"), strict=False)
    # BatchNorm2d counts its batches in training, which a served network has no use for.
    missing = [name for name in loaded.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or loaded.unexpected_keys:
        raise ValueError(f"{folder}: the weights do not fit the manifest: {missing + loaded.unexpected_keys}")
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file: an 8-byte length, a JSON header, then the raw values."""
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        dtype, (first, _) = DTYPES[entry["dtype"]], entry["data_offsets"]
        count = math.prod(entry["shape"])
        tensors[name] = torch.frombuffer(content, dtype=dtype, count=count, offset=start + first).reshape(
            entry["shape"]
        )
    return tensors
