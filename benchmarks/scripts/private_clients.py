"""Differential privacy that still learns: 20,000 simulated clients, 2,400 a round, a network of 442 numbers at most."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedfeast


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


def main() -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = fedfeast.train("digits", Path(folder) / "run", SETTINGS, network=small)
        result = {
            "seconds": round(time.perf_counter() - started, 1),
            "population_score": run.population_score,
            "curve": {str(point.macs): point.accuracy for point in run.curve.points},
            "privacy": run.summary["privacy"],
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
