"""Low-rank adapters of unequal rank on a body that was trained before, stays as it is and is never sent.

python examples/adapters.py [BODY]     some seconds; BODY is a state dict of the body, made in the script without it

A phone trains rank 1, a workstation rank 8; what averaging the two factors means is said in docs/own-network.md.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

import fedfeast
from fedfeast.networks.shipped.adapters import with_adapters

BODY = "ADAPTERS_BODY"  # the variable that says where the state dict lies, for later processes too


def body() -> nn.Sequential:
    """Return the network that is adapted, with the weights of the state dict where there is one."""
    layers = (nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
    network = nn.Sequential(nn.Flatten(), *layers)
    if BODY in os.environ:
        network.load_state_dict(torch.load(os.environ[BODY], weights_only=True))
    return network


def pretrain(path: Path) -> None:
    """Train the body on digits turned by a quarter: near to what the clients have, and not the same."""
    images, labels = load_digits(return_X_y=True)
    turned = torch.tensor(images / 16 - 0.3, dtype=torch.float32).view(-1, 1, 8, 8).rot90(1, (2, 3))
    network = body()
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(turned), torch.tensor(labels)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    torch.save(network.state_dict(), path)


@fedfeast.elastic(rank=[1, 2, 4, 8])
def adapted(rank: int) -> nn.Module:
    """The body with an adapter on each of its frozen linear layers; its last layer learns as it is."""
    with torch.device("cpu"):
        whole = body()
    return with_adapters(whole, rank, learns=["5.*"])


def main(folder: Path) -> None:
    """Train the adapters on digits as they stand."""
    report = fedfeast.check(adapted, torch.rand(2, 1, 8, 8), quiet=True)
    settings: dict[str, Any] = {
        "population.least_macs": float(report.least_macs),
        "population.greatest_macs": 1.1 * report.greatest_macs,
        "population.exponent": 0.3,
        "training.rounds": 20,
        "training.local_epochs": 3,
        "training.learning_rate": 0.3,
        "evaluation.every_rounds": 10,
        "engine.threads": 1,
    }
    run = fedfeast.train("digits", folder / "run", settings, network=adapted)
    body_size = sum(one.numel() for one in body().parameters())
    for point, size in zip(run.curve.points, report.members, strict=True):
        print(f"{size.member}: {size.parameters:,} numbers sent of {body_size:,}, {point.accuracy:.1%}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        if len(sys.argv) < 2:
            pretrain(Path(temporary) / "body.pt")
        os.environ[BODY] = sys.argv[1] if len(sys.argv) > 1 else str(Path(temporary) / "body.pt")
        main(Path(temporary))
