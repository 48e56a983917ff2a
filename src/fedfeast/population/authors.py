"""The draws of the paper's authors: their population, and their partition by a capped, repeated Dirichlet draw."""

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population.budgets import PAPER_GREATEST_MACS, Population, ranks_to_budgets
from fedfeast.population.partition import Partition, PerClient, Shards
from fedfeast.randomness import legacy_stream

LEAST_MACS = 24_957_968.0  # the least stated cost of their 56 networks
LEAST_SHARD = 10  # below which everything is drawn again
POPULATION_SEED, DATA_SEED = 0, 42
MOST_ATTEMPTS = 5_000  # their own draws need up to 249
LEAST_CONCENTRATION = 1e-6


def authors_population(
    num_clients: int = 100,
    *,
    exponent: float = 1.2,
    num_ranks: int | None = None,
    least_macs: float = LEAST_MACS,
    greatest_macs: float = PAPER_GREATEST_MACS,
) -> Population:
    """Return the population that the authors drew: Zipf ranks, half a step of jitter either way, clipped, shuffled."""
    stream, ranks_in_use = legacy_stream(POPULATION_SEED), num_clients if num_ranks is None else num_ranks
    return Population(_draw_budgets(stream, num_clients, exponent, ranks_in_use, least_macs, greatest_macs))


def _draw_budgets(
    stream: np.random.RandomState,
    num_clients: int,
    exponent: float = 1.2,
    num_ranks: int = 100,
    least_macs: float = LEAST_MACS,
    greatest_macs: float = PAPER_GREATEST_MACS,
) -> NDArray[np.float64]:
    if num_ranks < 2:
        raise InvalidInput(
            f"There are {num_ranks} ranks; the authors' draw needs at least 2: set population.num_ranks."
        )
    every_rank = np.arange(1, num_ranks + 1)
    ranks_to_budgets(every_rank, num_ranks, least_macs, greatest_macs)  # refuses a range that is none
    weights = every_rank**-exponent
    ranks = stream.choice(every_rank, size=num_clients, p=weights / weights.sum())
    step = (greatest_macs - least_macs) / (num_ranks - 1)
    jitter = stream.uniform(-step / 2, step / 2, size=num_clients)
    # In this order of operations, so that the last bits are theirs too.
    budgets = np.clip(least_macs + (ranks - 1) * step + jitter, least_macs, greatest_macs)
    stream.shuffle(budgets)
    return np.asarray(budgets, dtype=np.float64)


def authors_shares(population: Population, gamma: float, cap_macs: float) -> NDArray[np.float64]:
    """Return the data shares q(gamma) with the authors' rounding, on which their truncated cuts depend."""
    shares = population.data_shares(gamma, cap_macs)  # refuses what makes no sense
    with np.errstate(over="ignore"):
        weights = np.minimum(population.drawn_macs, cap_macs) ** gamma
        total = weights.sum()
    return np.asarray(weights / total, dtype=np.float64) if 0 < total < np.inf else shares


def permute_training(num_examples: int) -> tuple[NDArray[np.int64], np.random.RandomState]:
    """Return the order of all training examples, the server's first, and the stream that draws the shards then."""
    stream = legacy_stream(DATA_SEED)
    return stream.permutation(num_examples).astype(np.int64), stream


def partition_stream(num_training: int, num_clients: int, server_has_own: bool) -> np.random.RandomState:
    """Return the stream as it stands when the shards are drawn."""
    if not server_has_own:
        return permute_training(num_training)[1]
    # Where nothing is split off training, nothing seeds the stream again after the budgets.
    stream = legacy_stream(POPULATION_SEED)
    _draw_budgets(stream, num_clients)
    return stream


def partition_as_authors(
    labels: NDArray[np.integer],
    data_shares: NDArray[np.float64],
    alpha_data: float | PerClient,
    stream: np.random.RandomState,
    *,
    min_shard: int = LEAST_SHARD,
) -> Partition:
    """Return shards of the pool, given its labels in the pool's order, all drawn again until none is too small."""
    num_clients = len(data_shares)
    if num_clients * min_shard > len(labels):
        raise InvalidInput(
            f"{num_clients} clients with at least {min_shard} examples each need {num_clients * min_shard}, "
            f"but there are {len(labels)}; lower partition.min_shard or the number of clients."
        )
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for redraws in range(MOST_ATTEMPTS):
        shards = _draw_shards(classes, data_shares, alpha_data, stream)
        if shards is not None and shards.sizes.min() >= min_shard:
            shares = shards.sizes / len(labels)
            return Partition(shards, data_shares, shares, np.empty((0, 2), dtype=np.int64), {"redraws": redraws})
    raise InvalidInput(
        f"in {MOST_ATTEMPTS} draws no partition gave every client partition.min_shard = {min_shard} examples: lower "
        "it, raise alpha, or set partition.rule=dirichlet, which moves examples instead."
    )


def _draw_shards(
    classes: list[NDArray[np.int64]],
    shares: NDArray[np.float64],
    alpha_data: float | PerClient,
    stream: np.random.RandomState,
) -> Shards | None:
    """Draw all shards once; None where a class has nobody to go to."""
    num_examples = sum(map(len, classes))
    sizes = np.zeros(len(shares), dtype=np.int64)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in shares]
    for members in classes:
        shuffled = members.copy()
        stream.shuffle(shuffled)
        if isinstance(alpha_data, PerClient):
            concentrations = np.full(len(shares), alpha_data.alpha)
        else:
            concentrations = alpha_data * shares * len(members)
        with np.errstate(invalid="ignore"):
            drawn = stream.dirichlet(np.maximum(concentrations, LEAST_CONCENTRATION))
        # Whoever has his share already stands back; the last client takes what truncation leaves.
        open_shares = drawn * (sizes < shares * num_examples)
        total = open_shares.sum()
        if not total > 0:
            return None
        cuts = (np.cumsum(open_shares / total) * len(members)).astype(np.int64)[:-1]
        for client, part in enumerate(np.split(shuffled, cuts)):
            parts[client].append(part)
            sizes[client] += len(part)
    order = np.concatenate([part for own in parts for part in own]).astype(np.int64)
    return Shards(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
