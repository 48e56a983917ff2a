"""The authors' shards and server split, index for index, by the package's own rules against arrays that state them.

python benchmarks/scripts/authors_partition.py --labels labels.npz --arrays partition_seed0_indices.npz

labels.npz has y_train, the labels of CIFAR-100's training images in official order; the other file has as_designed,
as_loaded, offsets, validation and calibration, and the first three again ending in _baselines.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_partition
from fedfeast.recipes.splitting import divide_training

LETTER: dict[str, Any] = {
    "population.source": "authors",
    "partition.rule": "authors",
    "data.split_rule": "authors",
    "data.validation_examples": 4500,
    "data.calibration_examples": 500,
}
FLOORS = {"": 24_957_968.0, "_baselines": 25e6}  # of the budgets: FEAST's, and that of the compared methods


def compare(labels: np.ndarray, stated: Any, loaded: str, suffix: str) -> dict[str, bool]:
    """Return what is equal of one way to load the shards, and one floor of the budgets."""
    settings = {**LETTER, "partition.loaded": loaded, "population.least_macs": FLOORS[suffix]}
    recipe = load_recipe("cifar100-short", settings)
    division = divide_training(recipe, labels)
    pool = division.split.clients
    partition = build_partition(recipe, outline(recipe).population, labels[pool], division=division)
    indices = pool[partition.shards.order]
    return {
        "shards": np.array_equal(indices, stated[loaded.replace("-", "_") + suffix]),
        "offsets": np.array_equal(partition.shards.offsets, stated["offsets" + suffix]),
        "validation": np.array_equal(division.split.validation, stated["validation"]),
        "calibration": np.array_equal(division.split.calibration, stated["calibration"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--arrays", type=Path, required=True)
    given = parser.parse_args()
    labels = np.load(given.labels)["y_train"].astype(np.int64)
    with np.load(given.arrays) as stated:
        results = {
            (loaded, floor): compare(labels, stated, loaded, suffix)
            for loaded in ("as-designed", "as-loaded")
            for suffix, floor in FLOORS.items()
        }
    for (loaded, floor), equal in results.items():
        print(f"{loaded:<12} floor {floor:,.0f}:", ", ".join(f"{name} {same}" for name, same in equal.items()))
    sys.exit(not all(same for equal in results.values() for same in equal.values()))


if __name__ == "__main__":
    main()
