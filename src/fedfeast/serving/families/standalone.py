"""Loads a network that was taken out of a trained federation; this file and those beside it need torch alone.

from model import load
model = load("path/of/this/folder")
logits = model(images)          # uint8 images (batch, channels, height, width), or what the manifest's network takes
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
    "I16": torch.int16,
    "I32": torch.int32,
}
INPUT_DTYPES = {"uint8": torch.uint8, "int16": torch.int16, "int64": torch.int64, "float32": torch.float32}


PROGRAM = "model.pt2"  # a torch.export program, weights and normalisation inside
PROGRAMS = ("built", "traced")  # the families whose bundles hold one


class Model(nn.Module):
    """A network that takes inputs as the data have them, such as pixels: it normalises them itself."""

    mean: Tensor | None
    deviation: Tensor | None

    def __init__(self, network: nn.Module, table: dict[str, Any]) -> None:
        super().__init__()
        self.input_shape, self.input_dtype = read_input(table)
        ones = [1] * (len(self.input_shape) - 1)
        for name in ("mean", "deviation"):
            values = torch.tensor(table[name]).reshape(1, -1, *ones) if name in table else None
            self.register_buffer(name, values, persistent=False)
        self.network = network

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one input, by its former name."""
        return self.input_shape

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs, e.g. logits (batch, classes), of inputs as they are: pixels from 0 to 255, token ids."""
        self.check(inputs)
        outputs: Tensor = self.network(self.normalise(inputs))
        return outputs

    def check(self, inputs: Tensor) -> None:
        """Refuse inputs of another shape than the network takes."""
        if tuple(inputs.shape[1:]) != self.input_shape:
            what = "images" if self.input_dtype == torch.uint8 else "inputs"
            expected = ", ".join(map(str, self.input_shape))
            raise ValueError(f"{what} have the shape {tuple(inputs.shape)}: this network takes (batch, {expected}).")

    def normalise(self, inputs: Tensor) -> Tensor:
        """Return inputs as the network inside takes them: numbers normalised, token ids as int64."""
        if self.mean is None or self.deviation is None:
            return inputs.long()
        numbers = inputs.to(self.mean.dtype)
        if self.input_dtype == torch.uint8:
            numbers = numbers / 255
        return (numbers - self.mean) / self.deviation


class Program(Model):
    """A network kept as a torch.export program, which normalises its inputs itself."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of inputs as they are."""
        self.check(inputs)
        if not torch.can_cast(inputs.dtype, self.input_dtype):
            raise ValueError(f"inputs are {inputs.dtype}: this network takes {self.input_dtype}.")
        outputs: Tensor = self.network(inputs.to(self.input_dtype))
        return outputs


def read_input(table: dict[str, Any]) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the shape and type of one input of a manifest's network; square images where it names none."""
    if "input" in table:
        return tuple(table["input"]["shape"]), INPUT_DTYPES[table["input"]["dtype"]]
    return (table["image_channels"], table["image_size"], table["image_size"]), torch.uint8


def load(folder: str | Path, max_macs: float | None = None) -> Model:
    """Return a bundle's network, ready to predict; of a ladder, the largest that max_macs affords."""
    folder = Path(folder)
    if (folder / "ladder.json").is_file():
        folder = choose_rung(folder, max_macs)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if manifest["network"]["family"] in PROGRAMS:
        return load_program(folder / PROGRAM, manifest["network"])
    source = util.spec_from_file_location("network", folder / "network.py")
    assert source is not None
    assert source.loader is not None
    family = util.module_from_spec(source)
    source.loader.exec_module(family)
    network = family.Network(manifest["network"])
    return fill(network, manifest["network"], read_weights(folder / "weights.safetensors"))


def load_program(path: Path, table: dict[str, Any]) -> Program:
    """Return the network of a torch.export program, ready to predict."""
    return Program(torch.export.load(path).module(), table)


def choose_rung(ladder: Path, max_macs: float | None) -> Path:
    """Return the folder of a ladder's largest bundle within max_macs; of the largest of all without a limit."""
    rungs = json.loads((ladder / "ladder.json").read_text(encoding="utf-8"))["rungs"]
    prices = [rung.get("price", rung["macs"]) for rung in rungs]  # of caches that compare budgets with other MACs
    affordable = [rung for rung, price in zip(rungs, prices, strict=True) if max_macs is None or price <= max_macs]
    if not affordable:
        raise ValueError(f"nothing in {ladder} fits {max_macs:.0f} MACs: the smallest has {prices[0]} MACs.")
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
