"""Budget-aware Dirichlet partition of the training examples over the clients (Section 3.1, Eq. 2)."""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Shards:
    """The example indices of all clients, stored as one array grouped by client."""

    order: NDArray[np.int64]  # (examples,)
    offsets: NDArray[np.int64]  # (clients + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> NDArray[np.int64]:
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is outside 0..{len(self) - 1}")
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self[client] for client in range(len(self)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of examples of each client."""
        return np.diff(self.offsets)

    def held_classes(self, labels: NDArray[np.int64]) -> list[tuple[int, ...]]:
        """Return the classes that each client's examples have, sorted, given the labels of all examples."""
        return [tuple(np.unique(labels[shard]).tolist()) for shard in self]


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint shards, with the shares that were asked for and the shares that came out."""

    shards: Shards
    target_shares: NDArray[np.float64]  # (clients,), q
    realized_shares: NDArray[np.float64]  # (clients,)
    moves: NDArray[np.int64]  # (moved examples, 2): donor, receiver
    notes: Mapping[str, int] = field(default_factory=dict)  # what else there is to say, in numbers

    def report(self) -> dict[str, float | int]:
        """Return the numbers to judge a partition by; no share_correlation where it is undefined."""
        sizes, target, realized = self.shards.sizes, self.target_shares, self.realized_shares
        positive = target > 0
        with np.errstate(over="ignore"):
            overshoot = realized[positive] / target[positive]
        numbers: dict[str, float | int] = {
            "examples": int(sizes.sum()),
            "smallest_shard": int(sizes.min()),
            "median_shard": float(np.median(sizes)),
            "largest_shard": int(sizes.max()),
            "moved_examples": len(self.moves),
            "greatest_overshoot": float(overshoot.max()),
            "mean_absolute_share_difference": float(np.abs(realized - target).mean()),
            **self.notes,
        }
        if all(np.ptp(shares) > 1e-9 * shares.max() for shares in (target, realized)):
            numbers["share_correlation"] = float(np.corrcoef(target, realized)[0, 1])
        return numbers


def alpha_data_from_effective(alpha_eff: float, num_examples: int, num_classes: int, num_clients: int) -> float:
    """Return the alpha_data for which alpha_data * num_examples / (num_classes * num_clients) = alpha_eff."""
    if not (math.isfinite(alpha_eff) and alpha_eff > 0):
        raise InvalidInput(f"alpha_eff is {alpha_eff}; give a positive number, e.g. 0.45.")
    if min(num_examples, num_classes, num_clients) < 1:
        raise InvalidInput(
            f"There are {num_examples} examples, {num_classes} classes and {num_clients} clients; "
            "give at least one of each."
        )
    return alpha_eff * num_classes * num_clients / num_examples


@dataclass(frozen=True)
class PerClient:
    """A Dirichlet concentration that every client has in every class, in place of alpha_data * N_k * q."""

    alpha: float


def partition_by_budget(
    labels: NDArray[np.integer],
    data_shares: NDArray[np.floating],
    alpha_data: float | PerClient,
    generator: np.random.Generator,
    *,
    min_shard: int = 1,
) -> Partition:
    """Return disjoint shards of all examples: class k falls to the clients by Dir(alpha_data * N_k * q)."""
    shares = _checked_shares(data_shares)
    _check_sizes(labels, len(shares), alpha_data, min_shard)
    caps = shares * len(labels)  # examples
    examples = np.argsort(labels, kind="stable").astype(np.int64)  # grouped by class, classes ascending
    owners = np.empty(len(labels), dtype=np.int64)
    sizes = np.zeros(len(shares), dtype=np.int64)
    start = 0
    for num_in_class in np.unique(labels, return_counts=True)[1].tolist():
        members = slice(start, start + num_in_class)
        generator.shuffle(examples[members])
        # A Dirichlet draw with entries zeroed and renormalised is the draw with those shares at zero.
        # Choice: a full client is left out of the next classes; within a class it may pass its cap.
        open_shares = np.where(sizes < caps * (1 - 1e-12), shares, 0.0)
        if isinstance(alpha_data, PerClient):
            is_open = open_shares > 0
            alike = is_open / is_open.sum()
            proportions = draw_proportions(alike, alpha_data.alpha * float(is_open.sum()), generator)
        else:
            proportions = draw_proportions(open_shares, alpha_data * num_in_class, generator)
        counts = cut_counts(proportions, num_in_class)
        owners[members] = np.repeat(np.arange(len(shares)), counts)
        sizes += counts
        start += num_in_class
    shards = group_by_client(examples, owners, len(shares))
    moves = repair_moves(sizes, caps, min_shard)
    shards = apply_moves(shards, moves, generator)
    return Partition(shards, shares, shards.sizes / len(labels), moves)


def draw_proportions(
    shares: NDArray[np.float64], precision: float, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return one draw of Dir(precision * shares); a share of 0 receives exactly 0."""
    concentration = precision * shares
    # Gamma(c) is Gamma(c + 1) * U^(1/c), and -log U is exponential: in logarithms a tiny c cannot underflow.
    decay = np.full_like(concentration, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        exponential = generator.standard_exponential(len(shares))
        np.divide(exponential, concentration, out=decay, where=concentration > 0)
        log_weights = np.log(generator.standard_gamma(concentration + 1)) - decay
    greatest = log_weights.max()
    # Choice: where even logarithms overflow (precision below about 1e-300), the mean stands for the draw.
    weights = shares if greatest == -np.inf else np.exp(log_weights - greatest)
    assert weights.sum() > 0, "no client is open, though examples are left below the caps"
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def cut_counts(proportions: NDArray[np.float64], num_examples: int) -> NDArray[np.int64]:
    """Return how many of a class's examples each client receives; a proportion of 0 receives none."""
    cumulative = np.cumsum(proportions)
    # Choice: cuts round down, as in FedML: the first client loses a fraction per class, the last gains it.
    # Dividing by the last makes the final cut exact; 1e-9 keeps 0.7999999999999999 * 10 from becoming 7.
    cuts = np.floor(cumulative / cumulative[-1] * num_examples + 1e-9)
    counts: NDArray[np.int64] = np.diff(cuts, prepend=0).astype(np.int64)
    return counts


def are_classes(labels: NDArray[np.generic]) -> bool:
    """Tell classes from what other tasks have: next tokens, several labels, numbers."""
    return labels.ndim == 1 and labels.dtype.kind in "iu"


def group_by_client(examples: NDArray[np.int64], owners: NDArray[np.int64], num_clients: int) -> Shards:
    """Return the shards in which each example belongs to its owner."""
    sizes = np.bincount(owners, minlength=num_clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Shards(examples[np.argsort(owners, kind="stable")], offsets)


def repair_moves(sizes: NDArray[np.int64], caps: NDArray[np.float64], min_shard: int) -> NDArray[np.int64]:
    """Return the (donor, receiver) pairs, one per moved example, that bring every shard to min_shard."""
    # Choice: examples are moved and reported; redrawing until all shards are large enough may never end.
    receivers = np.repeat(np.arange(len(sizes)), np.maximum(min_shard - sizes, 0))
    donors = np.flatnonzero(sizes > min_shard)
    excess = sizes[donors] - caps[donors]
    heap = list(zip((-excess).tolist(), donors.tolist(), sizes[donors].tolist(), strict=True))
    heapq.heapify(heap)
    moves = np.empty((len(receivers), 2), dtype=np.int64)
    for move, receiver in enumerate(receivers.tolist()):
        shortage, donor, size = heap[0]
        moves[move] = donor, receiver
        if size - 1 > min_shard:
            heapq.heapreplace(heap, (shortage + 1, donor, size - 1))
        else:
            heapq.heappop(heap)
    return moves


def apply_moves(shards: Shards, moves: NDArray[np.int64], generator: np.random.Generator) -> Shards:
    """Return the shards after the moves; which examples a donor gives is drawn at random."""
    if len(moves) == 0:
        return shards
    examples = shards.order.copy()
    owners = np.repeat(np.arange(len(shards)), shards.sizes)
    by_donor = moves[np.argsort(moves[:, 0], kind="stable")]
    donors, firsts = np.unique(by_donor[:, 0], return_index=True)
    for donor, receivers in zip(donors, np.split(by_donor[:, 1], firsts[1:]), strict=True):
        start, end = shards.offsets[donor], shards.offsets[donor + 1]
        # Shards are ordered by class: without the shuffle the last classes alone would move.
        generator.shuffle(examples[start:end])
        owners[end - len(receivers) : end] = receivers
    return group_by_client(examples, owners, len(shards))


def _checked_shares(data_shares: NDArray[np.floating]) -> NDArray[np.float64]:
    shares = np.asarray(data_shares, dtype=np.float64)
    if shares.ndim != 1 or shares.size == 0:
        raise InvalidInput(f"Data shares have shape {shares.shape}; give one share per client, at least one.")
    wrong = np.flatnonzero(~(shares >= 0))
    if wrong.size:
        raise InvalidInput(f"The data share of client {wrong[0]} is {shares[wrong[0]]}; give a number of at least 0.")
    total = float(shares.sum())
    if abs(total - 1) > 1e-6:
        raise InvalidInput(f"The data shares add up to {total}; divide them by their sum.")
    return np.asarray(shares / total, dtype=np.float64)


def _check_sizes(labels: NDArray[np.integer], num_clients: int, alpha_data: float | PerClient, min_shard: int) -> None:
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iu":
        raise InvalidInput(
            f"Labels are {labels.dtype} of shape {labels.shape}; give one integer per example, at least one."
        )
    name, alpha = (
        ("alpha_client", alpha_data.alpha) if isinstance(alpha_data, PerClient) else ("alpha_data", alpha_data)
    )
    if not 0 < alpha < 1e300:
        raise InvalidInput(f"{name} is {alpha}; give a positive finite number, e.g. 0.1.")
    if min_shard < 0:
        raise InvalidInput(f"min_shard is {min_shard}; give at least 0.")
    if num_clients * min_shard > labels.size:
        raise InvalidInput(
            f"{num_clients} clients with at least {min_shard} examples each need {num_clients * min_shard}, "
            f"but there are {labels.size}; lower min_shard or the number of clients."
        )
