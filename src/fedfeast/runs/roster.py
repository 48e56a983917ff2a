"""The clients of a fleet as they joined: a table in the run's folder that gives every name its index for good."""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.federation import Client
from fedfeast.population import Partition, Population, Shards


@dataclass(frozen=True)
class Roster:
    """Everyone who ever joined, in the order of joining; a client's index is its place."""

    clients: tuple[Client, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)  # name -> hash of the key it was registered with, if it was

    def joined(self, arrivals: Iterable[tuple[Client, str]]) -> "Roster":
        """Return the roster with clients under their old indices, or the next ones where their names are new.

        With each comes the hash of the key that its name was registered with, empty for none.
        """
        by_name, keys = {client.name: client for client in self.clients}, dict(self.keys)
        for client, key in arrivals:
            index = by_name[client.name].index if client.name in by_name else len(by_name)
            by_name[client.name] = replace(client, index=index)
            if key:
                keys[client.name] = key
        return Roster(tuple(by_name.values()), keys)

    def population(self) -> Population:
        """Return names and budgets."""
        budgets = np.array([client.budget_macs for client in self.clients])
        return Population(budgets, tuple(client.name for client in self.clients))

    def partition(self) -> Partition:
        """Return who holds how much; which examples, the clients alone know."""
        sizes = np.array([client.num_examples for client in self.clients], dtype=np.int64)
        shards = Shards(np.empty(0, dtype=np.int64), np.concatenate([np.zeros(1, dtype=np.int64), sizes.cumsum()]))
        shares = sizes / sizes.sum()
        return Partition(shards, shares, shares, np.empty((0, 2), dtype=np.int64))

    def table(self, trains: Callable[[float], bool]) -> dict[str, Any]:
        """Return the columns of a run's clients.csv; nobody asked for other shares than the clients have."""
        shares = self.partition().realized_shares.tolist()
        return {
            "name": [client.name for client in self.clients],
            "budget_macs": [client.budget_macs for client in self.clients],
            "num_examples": [client.num_examples for client in self.clients],
            "target_share": shares,
            "realized_share": shares,
            "participates": [int(trains(client.budget_macs)) for client in self.clients],
            "held_classes": [" ".join(map(str, client.held_classes)) for client in self.clients],
            "key": [self.keys.get(client.name, "") for client in self.clients],
        }


def read_roster(path: Path) -> Roster:
    """Read the clients that joined a run from its clients.csv; an absent file is nobody."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
            keys = {row["name"]: row["key"] for row in rows if row.get("key")}
            return Roster(tuple(_client(index, row) for index, row in enumerate(rows)), keys)
    except FileNotFoundError:
        return Roster()
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise InvalidInput(f"{path} is damaged ({error}): restore it, or start in another folder.") from error


def _client(index: int, row: dict[str, str]) -> Client:
    classes = tuple(map(int, row["held_classes"].split()))
    return Client(index, row["name"], float(row["budget_macs"]), int(row["num_examples"]), classes)
