"""A network of your own made elastic, trained on the embedded digits by unequal clients, and taken out in two sizes.

python examples/own_network.py [FOLDER]     some seconds; FOLDER keeps the run and the bundles
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import fedfeast


class SmallCnn(nn.Module):
    """A plain module: nothing in it knows of federations or of other sizes."""

    def __init__(self, width: int, depth: int, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(16 * width, classes)  # of 4 x 4 places, a channel's side by side

    def forward(self, images: Tensor) -> Tensor:
        """Return the classes' logits; a block adds to what comes in, so that fewer blocks are a part of more."""
        features = self.norm(self.stem(images)).relu()
        for block in self.blocks:
            features = features + block(features).relu()
        logits: Tensor = self.head(features.flatten(1))
        return logits


@fedfeast.elastic(width=[4, 8, 16], depth=[1, 2])
def small_cnn(width: int, depth: int, *, channels: int, classes: int) -> nn.Module:
    """Six sizes; what stands behind the star is asked of the data."""
    return SmallCnn(width, depth, channels, classes)


def main(folder: Path) -> None:
    """Check, train, extract, predict."""
    report = fedfeast.check(small_cnn, torch.rand(4, 1, 8, 8), {"channels": 1, "classes": 10}, quiet=True)
    print(report)
    settings = {
        "population.least_macs": float(report.least_macs),
        "population.greatest_macs": 1.1 * report.greatest_macs,
        "population.exponent": 0.5,
        "training.rounds": 10,
        "training.local_epochs": 3,
        "evaluation.every_rounds": 10,
        "engine.threads": 1,
    }
    run = fedfeast.train("digits", folder / "run", settings, network=small_cnn)
    for point in run.curve.points:
        print(f"{point.macs:>9,} MACs  {point.parameters:>6,} parameters  {point.accuracy:.1%}")
    for name, budget in (("watch", report.least_macs), ("phone", report.greatest_macs)):
        manifest = fedfeast.extract(run, folder / name, fedfeast.Limits(max_macs=budget))
        model = fedfeast.load_bundle(folder / name)
        logits = model(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
        print(f"the {name}'s network has {manifest['macs']:,} MACs and gives {logits.shape[1]} logits")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
