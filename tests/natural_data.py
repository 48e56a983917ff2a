"""Small prepared data sets with clients of their own, and a network for each as a user writes it."""

from pathlib import Path

import numpy as np

from fedfeast.data.reading.decoded import decoded_arrays
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.randomness import named_generator
from fedfeast.recipes.recipe import Recipe, parse_recipe

CLIENTS = ("anna", "bert", "carl", "dora")
NUMBERS_NET = """
from torch import nn
from fedfeast.networks.built import elastic

@elastic(width=[2, 4, 8])
def net(width, *, channels, classes):
    norms = nn.Conv1d(channels, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU()
    return nn.Sequential(*norms, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, classes))
"""
TOKENS_NET = """
from torch import nn
from fedfeast.networks.built import elastic

class Letters(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.table, self.up = nn.Embedding(vocabulary, 4), nn.Linear(4, width)
        self.down = nn.Linear(width, vocabulary)
    def forward(self, tokens):
        return self.down(self.up(self.table(tokens)).relu())

@elastic(width=[2, 4, 8])
def net(width, *, vocabulary):
    return Letters(width, vocabulary)
"""
# Budgets that three widths of either network fit into, and rounds that take no time.
SETTINGS = (
    "population.source=data",
    "population.least_macs=110",
    "population.greatest_macs=500",
    "population.below_smallest=exclude",
    "data.validation_examples=8",
    "data.calibration_examples=8",
    "training.rounds=2",
    "training.batch_size=8",
    "training.clients_per_round=3",
    "evaluation.every_rounds=1",
    "engine.precision=float64",
    "engine.threads=1",
)


def write_numbers(folder: Path, examples: int = 30) -> None:
    """Write "moves": two channels of eight numbers in three classes, whose level tells them apart."""
    draw = named_generator(3, "moves")
    splits, owners = {}, {}
    for split, size in (("train", examples), ("test", examples // 3)):
        labels = draw.integers(3, size=size * len(CLIENTS))
        inputs = draw.standard_normal((len(labels), 2, 8)) + labels[:, None, None]
        splits[split] = inputs.astype(np.float32), labels
        owners[split] = np.arange(len(labels)) % len(CLIENTS)
    write_prepared(
        folder / "moves",
        decoded_arrays(("a", "b", "c"), splits, (CLIENTS, owners), kind="numbers"),
        {"normalisation": None},
    )


def write_tokens(folder: Path, examples: int = 30) -> None:
    """Write "letters": six tokens of five, each followed by the next one in order; the last label counts nowhere."""
    draw = named_generator(4, "letters")
    splits, owners = {}, {}
    for split, size in (("train", examples), ("test", examples // 3)):
        inputs = (draw.integers(5, size=(size * len(CLIENTS), 1)) + np.arange(6)) % 5
        labels = np.concatenate(((inputs[:, :-1] + 1) % 5, np.full((len(inputs), 1), -1)), axis=1)
        splits[split] = inputs.astype(np.uint8), labels.astype(np.int64)
        owners[split] = np.arange(len(labels)) % len(CLIENTS)
    decoded = decoded_arrays(tuple("abcde"), splits, (CLIENTS, owners), kind="tokens", task="next-token", vocabulary=5)
    write_prepared(folder / "letters", decoded, {"normalisation": None})


def natural_recipe(folder: Path, data: str, *settings: str) -> Recipe:
    """Write a data set and its network into a folder; return the recipe that trains the data's own clients."""
    write, network = {"moves": (write_numbers, NUMBERS_NET), "letters": (write_tokens, TOKENS_NET)}[data]
    if not (folder / data).is_dir():
        write(folder)
    (folder / f"{data}_net.py").write_text(network)
    text = f'name = "{data}"\n[data]\nname = "{data}"\nfolder = "{folder}"\n'
    return parse_recipe(text, data, [*SETTINGS, f"network.builder={folder / data}_net.py:net", *settings])
