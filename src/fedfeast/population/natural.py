"""Clients that are the data's own: who trains, who is held out, and how budgets go with what they hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population.partition import Partition, are_classes, group_by_client

Chosen = float | tuple[str, ...]  # a share of the clients, or their names
HALVINGS = 20  # of the range in which a correlation is looked for


@dataclass(frozen=True)
class ClientRules:
    """How the data's clients are divided; a client has one part."""

    held_out: Chosen = 0.0  # tested alone: they never train
    server: Chosen = 0.0  # whose examples the server holds
    least_examples: int = 1  # of training, that a client needs
    small_clients: Literal["exclude", "pool"] = "exclude"  # what becomes of those below


@dataclass(frozen=True, eq=False)
class ClientDivision:
    """Which clients do what; the training ones may stand for several small ones."""

    names: tuple[str, ...]  # of the training clients
    all_names: tuple[str, ...]  # of all the data's clients and pools
    of_client: NDArray[np.int64]  # (all clients,): the training client it belongs to, -1 for none
    held_out: NDArray[np.int64]  # positions among all clients
    server: NDArray[np.int64]
    excluded: NDArray[np.int64]
    pooled: int  # how many clients went into pools

    def report(self) -> dict[str, int]:
        """Return how many clients do what."""
        return {
            "training": len(self.names),
            "held_out": len(self.held_out),
            "server": len(self.server),
            "excluded": len(self.excluded),
            "pooled": self.pooled,
        }

    def as_one(self) -> "ClientDivision":
        """Return the division whose training clients are a single one, everyone."""
        trains = self.of_client >= 0
        name = _unused_name("everyone", self.all_names)
        of_client = np.where(trains, 0, -1).astype(np.int64)
        return replace(
            self, names=(name,), all_names=(*self.all_names, name), of_client=of_client, pooled=int(trains.sum())
        )


def divide_clients(
    names: Sequence[str], num_examples: NDArray[np.int64], rules: ClientRules, generator: np.random.Generator
) -> ClientDivision:
    """Hold out test and server clients; leave out or pool those with too few examples."""
    order = generator.permutation(len(names))
    held_out = _choose(names, rules.held_out, order, "data.held_out_clients")
    free = order[~np.isin(order, held_out)]
    server = _choose(names, rules.server, free, "data.server_clients", of=len(names))
    both = sorted(set(held_out.tolist()) & set(server.tolist()))
    if both:
        raise InvalidInput(
            f"client {names[both[0]]!r} is in data.held_out_clients and in data.server_clients: "
            "take it out of one of them."
        )
    rest = np.setdiff1d(np.arange(len(names)), np.concatenate((held_out, server)))
    small = rest[num_examples[rest] < rules.least_examples]
    training = np.setdiff1d(rest, small)
    pools = _pool(small, num_examples, rules.least_examples) if rules.small_clients == "pool" else []
    in_pools = np.concatenate(pools) if pools else small[:0]
    if not len(training) + len(pools):
        raise InvalidInput(
            f"no client is left to train: {len(held_out)} are held out, {len(server)} are the server's and "
            f"{len(small)} have fewer than data.least_examples = {rules.least_examples} examples: lower one of these."
        )
    of_client = np.full(len(names), -1, dtype=np.int64)
    of_client[training] = np.arange(len(training))
    for number, members in enumerate(pools):
        of_client[members] = len(training) + number
    pool_names = tuple(_unused_name(f"pool-{number}", names) for number in range(1, len(pools) + 1))
    excluded = np.setdiff1d(small, in_pools)
    training_names = tuple(names[one] for one in training) + pool_names
    all_names = (*names, *pool_names)
    held_out, server = np.sort(held_out), np.sort(server)
    return ClientDivision(training_names, all_names, of_client, held_out, server, excluded, len(in_pools))


def natural_partition(owners: NDArray[np.int64], num_clients: int) -> Partition:
    """Return the shards as the data have them, given the training client of every example of the pool."""
    shards = group_by_client(np.arange(len(owners), dtype=np.int64), owners, num_clients)
    shares = shards.sizes / len(owners)
    return Partition(shards, shares, shares, np.empty((0, 2), dtype=np.int64))


def keep_some(
    owners: NDArray[np.int64], labels: NDArray[np.integer], most: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return positions that leave every client at most so many examples, evenly over its classes, sorted."""
    shuffled = generator.permutation(len(owners))
    groups = labels if are_classes(labels) else np.zeros(len(owners), dtype=np.int64)
    by_class = shuffled[np.lexsort((groups[shuffled], owners[shuffled]))]
    rank_in_class = _rank_in_runs(owners[by_class], groups[by_class])
    by_rank = by_class[np.lexsort((rank_in_class, owners[by_class]))]
    return np.sort(by_rank[_rank_in_runs(owners[by_rank]) < most])


def assign_budgets(
    budgets_macs: NDArray[np.float64],
    num_examples: NDArray[np.int64],
    correlation: float,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the budgets dealt out so that their ranks correlate with those of the clients' data as wished."""
    # A Gaussian copula: ranks of z = r x + sqrt(1 - r^2) e, with x in the order of the data and e apart from it.
    noise = generator.standard_normal(len(budgets_macs))
    of_data = _normal_scores(num_examples, generator)
    noise -= of_data * (noise @ of_data) / (of_data @ of_data) if len(of_data) > 2 else 0.0
    noise /= max(float(noise.std()), 1e-12)
    of_data /= max(float(of_data.std()), 1e-12)

    def deal(pearson: float) -> NDArray[np.float64]:
        wanted = pearson * of_data + np.sqrt(max(0.0, 1 - pearson**2)) * noise
        dealt = np.empty_like(budgets_macs)
        dealt[np.argsort(wanted, kind="stable")] = np.sort(budgets_macs)
        return dealt

    def reached(pearson: float) -> float:
        return measure_correlation(deal(pearson), num_examples)["rank_correlation"] or 0.0

    # Clients with equally many examples weaken it, so r is looked for: Spearman's correlation rises with it.
    low, high = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < correlation else (low, middle)
    return deal(min((low, high), key=lambda one: abs(reached(one) - correlation)))


def measure_correlation(budgets_macs: NDArray[np.float64], num_examples: NDArray[np.int64]) -> dict[str, float | None]:
    """Return how budgets go with data: the correlation of their ranks, and the gamma that fits the shares best."""
    if np.ptp(budgets_macs) == 0 or np.ptp(num_examples) == 0:
        return {"rank_correlation": None, "gamma": None}
    of_budgets, of_data = _mean_ranks(budgets_macs), _mean_ranks(num_examples)
    slope = np.polyfit(np.log(budgets_macs), np.log(np.maximum(num_examples, 1)), 1)[0]
    return {"rank_correlation": float(np.corrcoef(of_budgets, of_data)[0, 1]), "gamma": float(slope)}


def _choose(
    names: Sequence[str], chosen: Chosen, order: NDArray[np.int64], setting: str, of: int | None = None
) -> NDArray[np.int64]:
    """Return the named clients, or the first of the shuffled ones up to a share of all."""
    if isinstance(chosen, float | int):
        wanted = chosen * (len(order) if of is None else of)
        return order[: max(round(wanted), 1) if chosen else 0]  # of few clients, a small share is one of them
    positions = {name: position for position, name in enumerate(names)}
    for name in chosen:
        if name not in positions:
            near = get_close_matches(name, names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InvalidInput(f"{setting} names {name!r}, and the data have no such client{hint}: name one of theirs.")
    return np.array([positions[name] for name in dict.fromkeys(chosen)], dtype=np.int64)


def _pool(small: NDArray[np.int64], num_examples: NDArray[np.int64], least: int) -> list[NDArray[np.int64]]:
    """Return groups of neighbouring small clients that have enough together; a rest joins the last group."""
    pools: list[NDArray[np.int64]] = []
    members: list[int] = []
    held = 0
    for client in small.tolist():
        members.append(client)
        held += int(num_examples[client])
        if held >= least:
            pools.append(np.array(members))
            members, held = [], 0
    if members and pools:
        pools[-1] = np.concatenate((pools[-1], members))
    return pools


def _unused_name(name: str, names: Sequence[str]) -> str:
    while name in names:
        name = f"{name}-"
    return name


def _rank_in_runs(*keys: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return each position's number within its run of equal keys."""
    starts = np.zeros(len(keys[0]), dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    firsts = np.flatnonzero(starts)
    return np.arange(len(starts)) - np.repeat(firsts, np.diff(np.append(firsts, len(starts))))


def _normal_scores(values: NDArray[np.generic], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return standard normal values in the order of the given ones; ties in drawn order."""
    order = np.lexsort((generator.random(len(values)), values))
    scores = np.empty(len(values))
    scores[order] = np.sort(generator.standard_normal(len(values)))
    return np.asarray(scores - scores.mean(), dtype=np.float64)


def _mean_ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
