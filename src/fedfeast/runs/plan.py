"""What a federation will send, compute and cover, before it starts and without its data on disk."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedfeast.data import FACTS
from fedfeast.engines.eager import ClientSlot
from fedfeast.federation import Assignment, Client, Method
from fedfeast.methods import build_method
from fedfeast.networks.normalisation import by_batch
from fedfeast.population import Partition, Population
from fedfeast.randomness import named_generator
from fedfeast.routing import count_traffic
from fedfeast.runs.assembly import (
    build_network,
    build_population,
    choose_device,
    choose_participants,
    partition_pool,
    split_off_server_examples,
)
from fedfeast.runs.recipe import Recipe
from fedfeast.variants import VariantCache, read_cache

TRAINING_FACTOR = 3  # a forward and backward pass against a forward pass, the paper's proxy
MEASURED_BATCH = 4  # examples; keeps the measurement short, times are scaled to the recipe's batch
MEASURED_REPEATS = 2  # the least of them counts
MOST_REALIZED_CLIENTS = 20_000  # beyond this only expected shards are planned


@dataclass(frozen=True, eq=False)
class Level:
    """The participating clients that afford the same variants: they are sent and train the same."""

    assignment: Assignment  # of one of them
    clients: np.ndarray  # their positions in the population
    affordable: int

    def pass_macs(self, method: Method) -> float:
        """Return the expected convolution MACs of one example's forward passes in a step."""
        passes = method.expected_passes(self.assignment)
        return sum(share * method.network.convolution_macs(one) for one, share in passes.items())


@dataclass(frozen=True, eq=False)
class Outline:
    """The parts of a federation that need no data."""

    recipe: Recipe
    method: Method
    cache: VariantCache
    population: Population
    levels: tuple[Level, ...]

    @property
    def participants(self) -> int:
        """The number of clients that take part."""
        return sum(len(level.clients) for level in self.levels)

    @property
    def rounds_per_client(self) -> float:
        """The rounds a participating client is sampled in, on average."""
        training = self.recipe.training
        return training.rounds * min(training.clients_per_round, self.participants) / self.participants


def outline(recipe: Recipe) -> Outline:
    """Build everything of a federation but its data, with clients grouped by what they afford."""
    network = build_network(recipe)
    cache = read_cache(recipe.variants.cache, network)
    method = build_method(recipe.method_name, network, cache, recipe.method.model_dump(exclude={"name"}))
    population = build_population(recipe.population, recipe.seed)
    participants = np.array(choose_participants(recipe.population, population, cache, method))
    affordable = np.searchsorted([variant.macs for variant in cache], population.budgets_macs, side="right")
    levels = []
    for count in np.unique(affordable[participants]).tolist():
        clients = participants[affordable[participants] == count]
        budget = float(population.budgets_macs[clients].min())
        one = Client(int(clients[0]), population.names[clients[0]], budget, num_examples=1)
        generator = named_generator(recipe.seed, "plan")
        (assignment,), _ = method.plan_round(method.initial_state(), [one], 0, generator)
        levels.append(Level(assignment, clients, count))
    return Outline(recipe, method, cache, population, tuple(levels))


def plan_recipe(recipe: Recipe, measure_time: bool = True) -> dict[str, Any]:
    """Return the plan of a recipe as a tree of plain values."""
    built = outline(recipe)
    population, network = built.population, built.method.network
    shares = population.data_shares(recipe.population.gamma, recipe.population.cap_macs)
    labels = _client_labels(recipe)
    expected = shares * len(labels)
    partition = _realize(recipe, population, labels)
    plan: dict[str, Any] = {
        "recipe": recipe.name,
        "method": recipe.method_name,
        "gamma": recipe.population.gamma,
        "rounds": recipe.training.rounds,
        "supernet": {"parameters": network.layout.num_parameters},
        "variants": {"count": len(built.cache), "macs_min": built.cache[0].macs, "macs_max": built.cache[-1].macs},
        "clients": {
            "count": population.num_clients,
            "participating": built.participants,
            "per_round": min(recipe.training.clients_per_round, built.participants),
            "budget_macs": _distribution(population.budgets_macs),
        },
        "data": {
            "client_examples": len(labels),
            "expected_shard": _distribution(expected),
            "realized": None if partition is None else partition.report(),
        },
        "levels": [_describe_level(level, built, expected) for level in built.levels],
        "traffic": _plan_traffic(built),
        "compute": _plan_compute(built, expected, partition),
    }
    if measure_time:
        plan["time"] = _plan_time(built, expected)
    return plan


def _client_labels(recipe: Recipe) -> np.ndarray:
    """Return the client pool's labels from the data set's declared class counts."""
    facts = FACTS[recipe.data.name]
    labels = np.arange(facts.train_examples) % facts.classes
    return np.asarray(labels[split_off_server_examples(recipe, labels).clients])


def _realize(recipe: Recipe, population: Population, labels: np.ndarray) -> Partition | None:
    """Draw the shards; None for a population too large to draw, or larger than the examples go round."""
    num_clients = population.num_clients
    if num_clients > MOST_REALIZED_CLIENTS or num_clients * recipe.partition.min_shard > len(labels):
        return None
    return partition_pool(recipe, population, labels)


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Return the quantiles of a client quantity: as readable for a million clients as for ten."""
    quantiles = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
    numbers = {name: float(np.quantile(values, share)) for name, share in quantiles.items()}
    return {**numbers, "mean": float(values.mean())}


def _describe_level(level: Level, built: Outline, expected: np.ndarray) -> dict[str, Any]:
    budgets = built.population.budgets_macs[level.clients]
    return {
        "affordable_variants": level.affordable,
        "largest_macs": built.method.network.macs(level.assignment.architectures[-1]),
        "clients": len(level.clients),
        "budget_macs": [float(budgets.min()), float(budgets.max())],
        "payload_parameters": level.assignment.slice_map.payload,
        "expected_examples": float(expected[level.clients].mean()),
        "pass_macs": level.pass_macs(built.method),
    }


def _plan_traffic(built: Outline) -> dict[str, Any]:
    payloads = np.concatenate(
        [np.full(len(level.clients), level.assignment.slice_map.payload) for level in built.levels]
    )
    traffic = count_traffic(payloads, built.method.network.layout.num_parameters)
    per_round = min(built.recipe.training.clients_per_round, built.participants)
    round_bytes = 2 * 4 * traffic.mean_payload * per_round  # both ways, float32
    return {
        "mean_payload_parameters": traffic.mean_payload,
        "reduction": traffic.reduction,
        "per_client_reduction": {
            "mean": traffic.per_client_mean,
            "median": traffic.per_client_median,
            "max": traffic.per_client_max,
        },
        "round_gigabytes": round_bytes / 1e9,
        "total_gigabytes": round_bytes * built.recipe.training.rounds / 1e9,
    }


def _plan_compute(built: Outline, expected: np.ndarray, partition: Partition | None) -> dict[str, Any]:
    """Return training PMACs by the paper's proxy: 3 x convolution MACs, n_i visits a sampled round."""
    numbers = {
        "training_pmacs": _training_pmacs(built, expected),
        "single_variant_pmacs": _training_pmacs(built, expected, largest_only=True),
    }
    if partition is not None:
        sizes = partition.shards.sizes.astype(np.float64)
        numbers["realized_training_pmacs"] = _training_pmacs(built, sizes)
        numbers["realized_single_variant_pmacs"] = _training_pmacs(built, sizes, largest_only=True)
    return numbers


def _training_pmacs(built: Outline, num_examples: np.ndarray, largest_only: bool = False) -> float:
    network, total = built.method.network, 0.0
    for level in built.levels:
        largest = network.convolution_macs(level.assignment.architectures[-1])
        macs = largest if largest_only else level.pass_macs(built.method)
        total += macs * float(num_examples[level.clients].sum())
    visits = built.rounds_per_client * built.recipe.training.local_epochs
    return TRAINING_FACTOR * visits * total / 1e15


def _plan_time(built: Outline, expected: np.ndarray) -> dict[str, Any]:
    """Predict the training time from a few measured passes on this device: seconds = a + b * MACs."""
    recipe, network = built.recipe, built.method.network
    device = choose_device(recipe)
    architectures = list(dict.fromkeys(one for level in built.levels for one in level.assignment.architectures))
    ordered = sorted(architectures, key=network.convolution_macs)
    chosen = [ordered[position] for position in sorted({0, len(ordered) // 2, len(ordered) - 1})]
    macs = np.array([network.convolution_macs(one) for one in chosen], dtype=np.float64)
    seconds = np.array(_measure_passes(built, chosen, device))
    slope, intercept = np.polyfit(macs, seconds, 1) if len(chosen) > 1 else (seconds[0] / macs[0], 0.0)
    slope, intercept = max(slope, 0.0), max(intercept, 0.0)
    scale = recipe.training.batch_size / MEASURED_BATCH
    per_round = 0.0
    for level in built.levels:
        passes = built.method.expected_passes(level.assignment)
        step = sum(
            share * (intercept + scale * slope * network.convolution_macs(one)) for one, share in passes.items()
        )
        steps = np.ceil(expected[level.clients] / recipe.training.batch_size).sum()
        per_round += recipe.training.local_epochs * step * float(steps)
    per_round *= built.rounds_per_client / recipe.training.rounds
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "measured_passes": [{"macs": int(m), "seconds": float(s)} for m, s in zip(macs, seconds, strict=True)],
        "seconds_per_round": per_round,
        "hours": per_round * recipe.training.rounds / 3600,
    }


def _measure_passes(built: Outline, architectures: Sequence[Hashable], device: torch.device) -> list[float]:
    """Return the seconds of one training pass of MEASURED_BATCH examples through each architecture."""
    network, facts = built.method.network, FACTS[built.recipe.data.name]
    slices = max((level.assignment.slice_map for level in built.levels), key=lambda one: one.payload)
    slot = ClientSlot(network, torch.float32, device)
    slot.load(slices.layout, torch.full((slices.payload,), 0.01, device=device))
    shape = (MEASURED_BATCH, facts.channels, facts.side, facts.side)
    images = torch.from_numpy(named_generator(0, "images").normal(size=shape)).to(device, torch.float32)
    seconds = []
    for architecture in architectures:
        leaves = slot.leaves(architecture)
        times = []
        for _ in range(MEASURED_REPEATS):
            started = _clock(device)
            outputs = network.forward(leaves.weights, images, architecture, by_batch)
            leaves.add_gradient_of(outputs[-1].square().mean())
            times.append(_clock(device) - started)
        seconds.append(min(times))
    return seconds


def _clock(device: torch.device) -> float:
    """Return the time in seconds once the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
