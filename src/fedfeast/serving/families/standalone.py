"""Loads a network that was taken out of a trained federation; this file and those beside it need torch alone.

from model import load
model = load("path/of/this/folder")
logits = model(images)          # uint8 images (batch, channels, height, width)
"""

import json
import math
from importlib import util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "U8": torch.uint8,
}


class Model(nn.Module):
    """A network that takes raw pixels: it normalises them itself."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, table: dict[str, Any]) -> None:
        super().__init__()
        channels, size = table["image_channels"], table["image_size"]
        self.image_shape = (channels, size, size)
        for name in ("mean", "deviation"):
            self.register_buffer(name, torch.tensor(table[name]).reshape(1, channels, 1, 1), persistent=False)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch, classes) of images with pixels from 0 to 255."""
        if images.dim() != 4 or tuple(images.shape[1:]) != self.image_shape:
            expected = ", ".join(map(str, self.image_shape))
            raise ValueError(f"images have the shape {tuple(images.shape)}: this network takes (batch, {expected}).")
        logits: Tensor = self.network(self.normalise(images))
        return logits

    def normalise(self, images: Tensor) -> Tensor:
        """Return images with pixels from 0 to 255 as the network inside takes them."""
        return (images.to(self.mean.dtype) / 255 - self.mean) / self.deviation


def load(folder: str | Path, max_macs: float | None = None) -> Model:
    """Return a bundle's network, ready to predict; of a ladder, the largest that max_macs affords."""
    folder = Path(folder)
    if (folder / "ladder.json").is_file():
        folder = choose_rung(folder, max_macs)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    source = util.spec_from_file_location("network", folder / "network.py")
    assert source is not None
    assert source.loader is not None
    family = util.module_from_spec(source)
    source.loader.exec_module(family)
    network = family.Network(manifest["network"])
    return fill(network, manifest["network"], read_weights(folder / "weights.safetensors"))


def choose_rung(ladder: Path, max_macs: float | None) -> Path:
    """Return the folder of a ladder's largest bundle within max_macs; of the largest of all without a limit."""
    rungs = json.loads((ladder / "ladder.json").read_text(encoding="utf-8"))["rungs"]
    affordable = [rung for rung in rungs if max_macs is None or rung["macs"] <= max_macs]
    if not affordable:
        raise ValueError(f"nothing in {ladder} fits {max_macs:.0f} MACs: the smallest has {rungs[0]['macs']} MACs.")
    return ladder / str(affordable[-1]["folder"])


def fill(network: nn.Module, table: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    """Load the tensors into the network of a manifest's table; return it ready to predict."""
    loaded = network.load_state_dict(tensors, strict=False)
    # BatchNorm2d counts its batches in training, which a served network has no use for.
    missing = [name for name in loaded.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or loaded.unexpected_keys:
        raise ValueError(f"the weights do not fit the network: {missing + loaded.unexpected_keys}")
    return Model(network, table).eval()


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
