"""Data of your own with the clients that they have: the next hour's use of electricity, a house being a client.

python examples/own_data.py [FOLDER]     some seconds; FOLDER keeps the run

The function ``houses`` is all that a data set needs; here it makes its numbers up. From a file it would be
fedfeast data prepare meters --from meters.npz --clients house --task regression
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fedfeast

HOUSES, WINDOWS, HOURS = 20, 40, 24


def houses() -> dict[str, Any]:
    """Return examples of any kind, their labels, and whose they are."""
    generator = np.random.default_rng(0)
    hours = np.arange(WINDOWS + HOURS)
    inputs, targets, names = [], [], []
    for house in range(HOUSES):
        cold = np.sin(2 * np.pi * (hours + generator.integers(24)) / 24) + 0.2 * generator.normal(size=len(hours))
        use = 1.5 + 0.6 * cold + 0.3 * np.roll(cold, 1) ** 2 + 0.1 * generator.normal(size=len(hours))
        for start in range(WINDOWS):
            window = slice(start, start + HOURS)
            inputs.append(np.stack([cold[window], use[window]]))  # channels first
            targets.append(use[(start + HOURS) % len(hours)])
            names.append(f"house-{house:02}")
    return {
        "inputs": np.array(inputs, dtype=np.float32),  # (examples, channels, hours)
        "labels": np.array(targets, dtype=np.float32),
        "clients": np.array(names),
        "task": "regression",
    }


SETTINGS: dict[str, Any] = {
    "data.name": f"{Path(__file__).resolve()}:houses",
    "data.held_out_clients": 0.25,  # houses that never train
    "data.server_clients": 0.1,  # whose examples choose and calibrate
    "data.validation_examples": 40,
    "data.calibration_examples": 20,
    "network.builder": "conv1d",
    "network.choices": {"width": [4, 8, 16], "depth": [1, 2]},
    "variants.num_targets": 5,
    "population.least_macs": 4e3,
    "population.greatest_macs": 100e3,
    "training.rounds": 20,
    "training.learning_rate": 0.05,
    "evaluation.every_rounds": 10,
}


def main(folder: Path) -> None:
    """Train, and say what a house that never trained gets from each size."""
    run = fedfeast.train("motion", folder / "run", SETTINGS)
    division = run.summary["division"]
    print(f"{division['training']} houses train, {division['held_out']} are held out; {run.metric.title} by size:")
    for point in run.curve.points:
        print(f"{point.macs:>9,} MACs  {point.value:.3f}  (r2 {point.figures['r2']:.2f})")
    print(f"mean over the houses' budgets: {run.population_score:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
