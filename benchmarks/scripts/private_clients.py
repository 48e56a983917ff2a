"""Differential privacy that still learns: local noise by default; `central` and `digits`: noise by a trusted server.

`local`: 20,000 clients of the synthetic set, 2,400 a round, 442 numbers at most; `central`: the same clients, 600 a
round, 6,706 numbers; `digits`: 1,100 clients with one handwritten digit each. Further arguments are settings.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedfeast
from fedfeast.recipes.recipe import parse_setting


class Small(nn.Module):
    def __init__(self, width: int, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, side, _ = shape
        self.pool, self.hidden = nn.AvgPool2d(2), nn.Linear(channels * (side // 2) ** 2, width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.hidden(self.pool(images).flatten(1)).relu())
        return logits


@fedfeast.elastic(width=[8, 16])
def small(width: int, *, shape: tuple[int, ...], classes: int) -> nn.Module:
    return Small(width, shape, classes)


@fedfeast.elastic(width=[16, 64, 248])
def wide(width: int, *, shape: tuple[int, ...], classes: int) -> nn.Module:
    return Small(width, shape, classes)


SETTINGS: dict[str, Any] = {
    "data.name": "synthetic",
    "data.validation_examples": 500,
    "data.calibration_examples": 500,
    "population.num_clients": 20_000,
    "population.exponent": 0.0,
    "population.gamma": 0.0,
    "population.least_macs": 250.0,
    "population.greatest_macs": 900.0,
    "partition.alpha_eff": 1000.0,
    "aggregation.weigh": "alike",  # unequal weights would let less noise cancel out
    "privacy.clip_norm": 2.0,
    "privacy.noise_multiplier": 1.0,
    "training.rounds": 8,
    "training.clients_per_round": 2400,
    "training.batch_size": 8,
    "training.learning_rate": 3.0,
    "training.schedule": "constant",
    "training.weight_decay": 0.0,
    "evaluation.every_rounds": 2,
}
CENTRAL: dict[str, Any] = {
    **SETTINGS,
    "population.least_macs": 420.0,
    "population.greatest_macs": 9_000.0,
    "privacy.mechanism": "central",
    "privacy.clip_norm": 1.0,
    "training.cohort": "poisson",
    "training.rounds": 30,
    "training.clients_per_round": 600,
    "evaluation.every_rounds": 10,
}
DIGITS: dict[str, Any] = {
    **CENTRAL,
    "data.name": "digits",
    "data.validation_examples": 160,
    "data.calibration_examples": 120,
    "population.num_clients": 1100,
    "population.greatest_macs": 4000.0,
    "privacy.noise_multiplier": 2.0,
    "privacy.least_holders": 110.0,  # few can afford the largest network: as little noise where few hold a position
    "training.rounds": 100,
    "training.clients_per_round": 110,
}
KINDS = {"local": (SETTINGS, small), "central": (CENTRAL, wide), "digits": (DIGITS, wide)}


def main() -> None:
    started, (kind, *given) = time.perf_counter(), sys.argv[1:] or ["local"]
    settings, network = KINDS[kind]
    settings = {**settings, **dict(parse_setting(one) for one in given)}
    with tempfile.TemporaryDirectory() as folder:
        run = fedfeast.train("digits", Path(folder) / "run", settings, network=network)
        result = {
            "seconds": round(time.perf_counter() - started, 1),
            "population_score": run.population_score,
            "curve": {str(point.macs): point.accuracy for point in run.curve.points},
            "privacy": run.summary.get("privacy"),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
