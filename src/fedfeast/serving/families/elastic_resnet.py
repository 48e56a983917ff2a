"""The elastic ResNet in torch alone; every bundle of the family carries a copy of this file as network.py."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from fedfeast.networks import Architecture, ElasticResNet


def describe(network: "ElasticResNet", architecture: "Architecture") -> dict[str, Any]:
    """Return the manifest's table of a trained network, from which Network rebuilds it."""
    space = network.space
    signed = {"branch": "signed"} if network.branch == "signed" else {}
    return {
        "image_channels": space.image_channels,
        "image_size": space.image_size,
        "classes": space.classes,
        "stem": {"channels": space.stem_width(architecture), "stride": space.stem_stride},
        "stages": [
            {
                "channels": space.stage_width(architecture, stage),
                "middle": space.middle_width(architecture, stage),
                "blocks": 1 + depth,
                "stride": space.stage_strides[stage],
            }
            for stage, depth in enumerate(architecture.depths)
        ],
        **signed,
    }


class Stem(nn.Module):
    """The first convolution."""

    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the stem's features."""
        return F.relu(self.norm(self.conv(images)))


class Block(nn.Module):
    """Two 3x3 convolutions, rectified before the addition too, unless signed; a stage's first projects its shortcut."""

    def __init__(
        self, incoming: int, middle: int, width: int, stride: int, projects: bool, signed: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, middle, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.projects, self.signed = projects, signed
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width)

    def forward(self, features: Tensor) -> Tensor:
        """Return the block's features."""
        hidden = F.relu(self.norm1(self.conv1(features)))
        hidden = self.norm2(self.conv2(hidden))
        if not self.signed:
            hidden = F.relu(hidden)
        if self.projects:
            if self.stride > 1:
                features = F.avg_pool2d(features, self.stride, ceil_mode=True)
            features = self.shortcut_norm(self.shortcut(features))
        return F.relu(hidden + features)


class Network(nn.Module):
    """The network of a manifest's ``network`` table."""

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__()
        incoming = table["stem"]["channels"]
        signed = table.get("branch") == "signed"  # tables of earlier versions do not say
        self.stem = Stem(table["image_channels"], incoming, table["stem"]["stride"])
        self.stages = len(table["stages"])
        for number, stage in enumerate(table["stages"], start=1):
            blocks = nn.ModuleDict()
            for block in range(stage["blocks"]):
                stride = stage["stride"] if block == 0 else 1
                width = stage["channels"]
                blocks[f"block{block}"] = Block(incoming, stage["middle"], width, stride, block == 0, signed)
                incoming = width
            self.add_module(f"stage{number}", blocks)
        self.head = nn.Linear(incoming, table["classes"])

    def forward(self, normalised: Tensor) -> Tensor:
        """Return the logits (batch, classes) of normalised images (batch, channels, height, width)."""
        features = self.stem(normalised)
        for number in range(1, self.stages + 1):
            for block in self.get_submodule(f"stage{number}").children():
                features = block(features)
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits
