"""The compared methods' ResNet in torch alone; every bundle of the family carries a copy of this file as network.py."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from fedfeast.networks import Level, ResNet
    from fedfeast.networks.ensemble import Bases, Ensemble


def describe_ensemble(network: "Ensemble", bases: "Bases") -> dict[str, Any]:
    """Return the manifest's table of some networks of an ensemble."""
    return {**describe(network.base, network.base.whole), "bases": list(bases.numbers)}


def describe(network: "ResNet", level: "Level") -> dict[str, Any]:
    """Return the manifest's table of a trained network, from which Network rebuilds it."""
    counted_in_blocks = {"exits_counted_in": "blocks"} if level.blocks else {}
    divided = {"divisor": level.divisor} if level.divisor != 1 else {}
    averaged = {"averages_exits": True} if network.averages_exits else {}
    return {
        "image_channels": network.image_channels,
        "image_size": network.image_size,
        "classes": network.classes,
        "activation": network.activation,
        "stem_stride": network.stem_stride,
        "stages": [
            {"channels": channels, "blocks": blocks, "stride": network.stage_strides[stage]}
            for stage, (channels, blocks) in enumerate(
                zip(level.channels, level.blocks or network.blocks[: len(level.channels)], strict=True)
            )
        ],
        "exits": list(level.exits),
        **counted_in_blocks,
        **divided,
        **averaged,
    }


class Stem(nn.Module):
    """The first convolution; a network that activates before convolutions leaves it as it is."""

    def __init__(self, incoming: int, width: int, stride: int, activates: bool, divisor: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.activates, self.divisor = activates, divisor
        if activates:
            self.norm = nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the stem's features."""
        features: Tensor = self.conv(images)
        return divided(F.relu(self.norm(features)), self.divisor) if self.activates else features


class BlockActivatedAfter(nn.Module):
    """Two 3x3 convolutions, each normalised after; the result is rectified after the addition."""

    def __init__(self, incoming: int, width: int, stride: int, projects: bool, divisor: float = 1.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.projects, self.divisor = projects, divisor
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width)

    def forward(self, features: Tensor) -> Tensor:
        """Return the block's features."""
        hidden = divided(F.relu(self.norm1(self.conv1(features))), self.divisor)
        hidden = self.norm2(self.conv2(hidden))
        if self.projects:
            features = self.shortcut_norm(self.shortcut(features))
        return divided(F.relu(hidden + features), self.divisor)


def divided(features: Tensor, divisor: float) -> Tensor:
    """Return the features divided, unless it is by 1."""
    return features if divisor == 1 else features / divisor


class BlockActivatedBefore(nn.Module):
    """Two 3x3 convolutions, each of normalised and rectified features; the shortcut's are the first one's."""

    def __init__(self, incoming: int, width: int, stride: int, projects: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(incoming)
        self.conv1 = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.projects = projects
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, stride, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return the block's features."""
        activated = F.relu(self.norm1(features))
        if self.projects:
            features = self.shortcut(activated)
        hidden: Tensor = self.conv2(F.relu(self.norm2(self.conv1(activated))))
        return hidden + features


class Network(nn.Module):
    """The network of a manifest's ``network`` table; of several exits it computes the last, or the mean of all.

    A table of bases is an ensemble: the mean of as many networks.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__()
        self.bases = [f"base{number}" for number in table.get("bases", [])]
        if self.bases:
            for name in self.bases:
                self.add_module(name, Network({**table, "bases": []}))
            return
        self.activates_after, self.last_exit = table["activation"] == "after", table["exits"][-1]
        # Tables of earlier versions count exits in stages and divide nothing.
        by_blocks, divisor = table.get("exits_counted_in") == "blocks", table.get("divisor", 1.0)
        self.averaged = table["exits"] if table.get("averages_exits") else []
        incoming, count = table["stages"][0]["channels"], 0
        self.stem = Stem(table["image_channels"], incoming, table["stem_stride"], self.activates_after, divisor)
        self.stages = len(table["stages"])
        for number, stage in enumerate(table["stages"], start=1):
            blocks, width = nn.ModuleDict(), stage["channels"]
            for block in range(stage["blocks"]):
                stride, projects = (stage["stride"], number > 1) if block == 0 else (1, False)
                if self.activates_after:
                    blocks[f"block{block}"] = BlockActivatedAfter(incoming, width, stride, projects, divisor)
                else:
                    blocks[f"block{block}"] = BlockActivatedBefore(incoming, width, stride, projects)
                incoming, count = width, count + 1
                if by_blocks and count in table["exits"]:
                    self.add_module(f"head{count}", nn.Linear(width, table["classes"]))
            self.add_module(f"stage{number}", blocks)
            if not by_blocks and number in table["exits"]:
                self.add_module(f"head{number}", nn.Linear(width, table["classes"]))
        if not self.activates_after:
            self.final_norm = nn.BatchNorm2d(incoming)

    def forward(self, normalised: Tensor) -> Tensor:
        """Return the logits (batch, classes) of normalised images (batch, channels, height, width)."""
        if self.bases:
            return mean_of([self.get_submodule(name)(normalised) for name in self.bases])
        features = self.stem(normalised)
        logits: list[Tensor] = []
        for number in range(1, self.stages + 1):
            for block in self.get_submodule(f"stage{number}").children():
                features = block(features)
            if number in self.averaged:
                logits.append(self.get_submodule(f"head{number}")(features.mean(dim=(2, 3))))
        if not self.activates_after:
            features = F.relu(self.final_norm(features))
        if not logits:
            logits.append(self.get_submodule(f"head{self.last_exit}")(features.mean(dim=(2, 3))))
        return mean_of(logits)


def mean_of(logits: list[Tensor]) -> Tensor:
    """Return the mean of some outputs."""
    total = logits[0]
    for one in logits[1:]:
        total = total + one
    return total if len(logits) == 1 else total / len(logits)
