"""The paper's protocol as it was guessed before its authors' code could be read."""

from typing import Any

# On top of cifar100-paper.
GUESSED: dict[str, Any] = {
    "data": {"name": "cifar100", "validation_examples": 4000, "calibration_examples": 1000},
    "population": {"source": "paper", "cap_macs": 600e6, "gamma": 1.0},
    "partition": {"alpha_eff": 0.45},
    "training.last_batch": "topped-up",
    "training.learning_rate": 0.1,
    "training.momentum": 0.0,
    "training.weight_decay": 5e-4,
    "training.unreached": "decay",
    "augmentation.mixup_beta": 1.0,
}
