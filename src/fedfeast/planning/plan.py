"""What a federation will send, compute and cover, before it starts and without its data on disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfeast.data import OFFICIAL, load_dataset, split_as_authors
from fedfeast.data.splits import AUTHORS_CIFAR100_CLASSES
from fedfeast.federation import OperatingPoint
from fedfeast.federation.wire.formats import Packing
from fedfeast.planning.batching import plan_batches
from fedfeast.planning.clock import plan_clock
from fedfeast.planning.coverage import cover
from fedfeast.planning.device_memory import plan_memory
from fedfeast.planning.outline import BudgetGroup, Outline, outline, refuse_larger_cohorts
from fedfeast.planning.privacy_noise import plan_privacy
from fedfeast.planning.timing import PassTimes, predict_time
from fedfeast.planning.validated_sizes import further_sizes, share_of_training
from fedfeast.population import Partition, Population
from fedfeast.population.natural import measure_correlation, natural_partition
from fedfeast.recipes.building import build_partition, build_selection, build_wire
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.recipes.splitting import TrainingDivision, divide_training, split_dataset
from fedfeast.routing import count_traffic

STATED_LEAST_MACS = 25e6  # the least budget of the accounting behind the paper's training compute
MOST_REALIZED_CLIENTS = 20_000  # beyond this only expected shards are planned


def plan_recipe(
    recipe: str | Path | Recipe, settings: Mapping[str, Any] | Sequence[str] = (), times: PassTimes | None = None
) -> dict[str, Any]:
    """Return the plan of a recipe as a tree of plain values; with measured pass times it predicts the duration."""
    recipe = resolve_recipe(recipe, settings)
    built = outline(recipe)
    refuse_larger_cohorts(recipe, built.population)
    population, network, points = built.population, built.method.network, built.method.operating_points()
    expected, partition = _expected_examples(built)
    plan: dict[str, Any] = {
        "recipe": recipe.name,
        "method": recipe.method_name,
        "gamma": recipe.population.gamma if built.natural is None else None,  # the data's own clients: see below
        "rounds": recipe.training.rounds,
        "supernet": {"parameters": network.layout.num_parameters},
        "variants": _describe_points(points),
        "clients": {
            "count": population.num_clients,
            "participating": len(built.participants),
            "per_round": min(recipe.training.clients_per_round, len(built.participants)),
            "budget_macs": _distribution(population.budgets_macs),
            "by_variants": _count_by_variants(built),
            **_beyond_budget(built),
        },
        "data": {
            "name": recipe.data.name,
            "client_examples": round(float(expected.sum())),
            "expected_shard": _distribution(expected),
            "realized": None if partition is None else partition.report(),
            "batches": None if partition is None else _plan_steps(built, partition),
        },
        "levels": [_describe_group(group, built, expected) for group in built.groups],
        "traffic": plan_traffic(built),
        "compute": _plan_compute(built, expected, partition),
        "memory": plan_memory(built, round(float(expected.sum()))),
        "selection": _plan_selection(built),
    }
    stated = plan_stated(built)
    if stated is not None:
        plan["compute"]["stated"] = stated
    if built.natural is not None:
        plan["clients"]["budgets_and_data"] = measure_correlation(population.budgets_macs, built.natural.sizes)
        plan["clients"]["division"] = built.natural.division.report()
    if population.num_lifted:
        plan["clients"]["lifted"] = population.num_lifted
    realized = expected if partition is None else partition.shards.sizes
    plan["coverage"] = cover(built, np.asarray(realized, dtype=np.float64))
    plan["sizes"] = _plan_sizes(built, np.asarray(realized, dtype=np.float64))
    clock = plan_clock(built, np.asarray(realized, dtype=np.float64))
    if clock is not None:
        plan["clock"] = clock
    privacy = plan_privacy(built, np.asarray(realized))
    if privacy is not None:
        plan["privacy"] = privacy
    if times is not None:
        plan["time"] = predict_time(built, expected, times)
    return plan


def _expected_examples(built: Outline) -> tuple[np.ndarray, Partition | None]:
    """Return how many examples each client will hold on average, and the shards where they can be known."""
    if built.natural is not None:
        partition = natural_partition(built.natural.owners, built.population.num_clients)
        return partition.shards.sizes.astype(np.float64), partition
    recipe, population = built.recipe, built.population
    labels, division = _divide_labels(recipe)
    realized = _realize(recipe, population, labels, division)
    if realized is not None and recipe.partition.file is not None:
        return realized.shards.sizes.astype(np.float64), realized
    shares = population.data_shares(recipe.population.gamma, recipe.population.cap_macs)
    return shares * len(labels), realized


def _divide_labels(recipe: Recipe) -> tuple[np.ndarray, TrainingDivision | None]:
    """Return the client pool's labels and what divides it: of an official image set without its files."""
    facts = recipe.data.facts
    if recipe.data.name in OFFICIAL and not facts.clients:  # the classes of data with clients are not equally many
        labels = _stand_in_labels(recipe)
        server_labels = np.arange(facts.server_examples) % facts.classes if facts.server_examples else None
        division = divide_training(recipe, labels, server_labels)
        return np.asarray(labels[division.split.clients]), division
    dataset = load_dataset(recipe.data.name, recipe.data.folder)
    split = split_dataset(recipe, dataset)
    return np.asarray(dataset.train.labels.numpy()[split.pool]), split.division


def _stand_in_labels(recipe: Recipe) -> np.ndarray:
    """Return labels of an official image set with its class counts: the sizes of shards depend on nothing else."""
    section, facts = recipe.data, recipe.data.facts
    labels = np.arange(facts.train_examples) % facts.classes
    if section.split_rule != "authors" or facts.server_examples:
        return labels
    if section.name != "cifar100":
        return np.sort(labels)  # folders are read class by class
    split = split_as_authors(len(labels), section.validation_examples, section.calibration_examples)
    if len(labels) - len(split.clients) == sum(AUTHORS_CIFAR100_CLASSES):
        classes, of_server = np.arange(facts.classes), np.array(AUTHORS_CIFAR100_CLASSES)
        labels[np.concatenate((split.validation, split.calibration))] = np.repeat(classes, of_server)
        labels[split.clients] = np.repeat(classes, len(labels) // facts.classes - of_server)
    return labels


def _realize(
    recipe: Recipe, population: Population, labels: np.ndarray, division: TrainingDivision | None
) -> Partition | None:
    """Draw the shards; None for a population too large to draw."""
    if population.num_clients > MOST_REALIZED_CLIENTS and recipe.partition.file is None:
        return None
    return build_partition(recipe, population, labels, division=division)


def _plan_steps(built: Outline, partition: Partition) -> dict[str, int]:
    """Return how many local steps all participating clients take in one round each, and who takes none."""
    training = built.recipe.training
    batches = plan_batches(training, partition.shards.sizes[np.array(built.participants)])
    return batches.report(training.local_epochs)


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Return the quantiles of a client quantity: as readable for a million clients as for ten."""
    quantiles = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
    numbers = {name: float(np.quantile(values, share)) for name, share in quantiles.items()}
    return {**numbers, "mean": float(values.mean())}


def _describe_points(points: Sequence[OperatingPoint]) -> dict[str, Any]:
    costs = [point.macs for point in points]
    described = {"count": len(points), "macs_min": min(costs), "macs_max": max(costs)}
    if any(point.listed_price is not None for point in points):
        described |= {"price_min": points[0].price, "price_max": points[-1].price}
    return described


def _count_by_variants(built: Outline) -> dict[str, int]:
    """Return how many participating clients afford one network, two, and three or more."""
    counts = {"one": 0, "two": 0, "more": 0}
    for group in built.groups:
        counts[{1: "one", 2: "two"}.get(group.affordable, "more")] += len(group.clients)
    return counts


def _beyond_budget(built: Outline) -> dict[str, dict[str, int]]:
    """Return how many clients train what truly costs more than their budget, where a cache has prices."""
    points = built.method.operating_points()
    if all(point.listed_price is None for point in points):
        return {}
    counts = {"any": 0, "largest": 0}
    for group in built.groups:
        affordable = [point.macs for point in points[: group.affordable]]
        budgets = built.population.budgets_macs[group.clients]
        counts["any"] += int((budgets < max(affordable, default=0)).sum())
        counts["largest"] += int((budgets < (affordable or [0])[-1]).sum())
    return {"beyond_budget": counts}


def _plan_selection(built: Outline) -> dict[str, Any]:
    """Return by what the served round will be chosen, and which networks are validated for it."""
    selection = build_selection(built.recipe)
    points = selection.points(built.method.operating_points(), built.population.budgets_macs)
    return {"rule": selection.rule, "figure": selection.words, "points": [point.name for point in points]}


def _plan_sizes(built: Outline, num_examples: np.ndarray) -> dict[str, Any]:
    """Return which networks are validated beside those of the selection, and what share of training that costs."""
    further = further_sizes(built, num_examples)
    return {
        "further_points": [point.name for point in further],
        "share_of_training": share_of_training(built, further, num_examples),
    }


def _describe_group(group: BudgetGroup, built: Outline, expected: np.ndarray) -> dict[str, Any]:
    budgets = built.population.budgets_macs[group.clients]
    return {
        "affordable_variants": group.affordable,
        "largest_macs": max(built.method.served_macs(one) for one in group.assignments),
        **_largest_price(group, built.method.operating_points()),
        "clients": len(group.clients),
        "budget_macs": [float(budgets.min()), float(budgets.max())],
        "payload_parameters": group.payload,
        "expected_examples": float(expected[group.clients].mean()),
        "pass_macs": group.pass_macs(built.method),
    }


def _largest_price(group: BudgetGroup, points: Sequence[OperatingPoint]) -> dict[str, int]:
    if all(point.listed_price is None for point in points):
        return {}
    return {"largest_price": points[group.affordable - 1].price if group.affordable else 0}


def plan_traffic(built: Outline) -> dict[str, Any]:
    """Return what routing saves over all participating clients."""
    payloads = np.concatenate([np.full(len(group.clients), group.payload) for group in built.groups])
    traffic = count_traffic(payloads.tolist(), built.method.network.layout.num_parameters)
    wire = build_wire(built.recipe)
    down, up = (built.answers_per_round * _mean_bytes(built, packing) for packing in (wire.downwards, wire.upwards))
    largest = sum(group.largest_payload * len(group.clients) for group in built.groups)
    kept = (int(wire.feeds_back) + int(wire.down_deltas)) * 4.0 * largest
    return {
        "mean_payload_parameters": traffic.mean_payload,
        "largest_payload_parameters": max(group.largest_payload for group in built.groups),
        "reduction": traffic.reduction,
        "per_client_reduction": {
            "mean": traffic.per_client_mean,
            "median": traffic.per_client_median,
            "max": traffic.per_client_max,
        },
        "round_gigabytes": (down + up) / 1e9,
        "total_gigabytes": (down + up) * built.recipe.training.rounds / 1e9,
        "round_gigabytes_down": down / 1e9,
        "round_gigabytes_up": up / 1e9,
        **({"remembered_gigabytes": kept / 1e9} if kept else {}),
    }


def _mean_bytes(built: Outline, packing: Packing) -> float:
    """Return what a participating client is sent, or returns, in a round on average; weights are float32."""

    def of(group: BudgetGroup) -> float:
        counts = [packing.most_bytes(one.slice_map.tensor_sizes(), torch.float32) for one in group.assignments]
        return float(np.average(counts, weights=group.shares or None))

    return float(np.average([of(group) for group in built.groups], weights=[len(one.clients) for one in built.groups]))


def count_examples(built: Outline) -> np.ndarray:
    """Return how many examples each client holds: as drawn where that can be known, else on average."""
    expected, partition = _expected_examples(built)
    return expected if partition is None else partition.shards.sizes.astype(np.float64)


def plan_compute(recipe: Recipe | Outline) -> dict[str, float]:
    """Return the training compute alone, from expected shards."""
    built = outline(recipe) if isinstance(recipe, Recipe) else recipe
    return _plan_compute(built, _expected_examples(built)[0], None)


def _plan_compute(built: Outline, expected: np.ndarray, partition: Partition | None) -> dict[str, float]:
    """Return training PMACs by the paper's proxy: 3 x convolution MACs, n_i visits a sampled round."""
    numbers = {
        "training_pmacs": built.training_pmacs(expected),
        "single_variant_pmacs": built.training_pmacs(expected, largest_only=True),
    }
    if partition is not None:
        sizes = partition.shards.sizes.astype(np.float64)
        numbers["realized_training_pmacs"] = built.training_pmacs(sizes)
        numbers["realized_single_variant_pmacs"] = built.training_pmacs(sizes, largest_only=True)
    return numbers


def plan_stated(built: Outline) -> dict[str, float] | None:
    """Return the training PMACs by the MACs that a cache states, counted as its makers do; None without any."""
    stated = {variant.architecture: variant.stated_macs for variant in built.cache}
    trained = {one for group in built.groups for one in group.expected_passes(built.method)}
    costs = {one: macs for one, macs in stated.items() if macs is not None}
    if not trained <= costs.keys():
        return None
    accounted = built
    if built.recipe.population.source == "authors":
        # Their figures are of the shards that they drew for budgets from 25M on (docs/decisions/031).
        accounted = outline(resolve_recipe(built.recipe, {"population.least_macs": STATED_LEAST_MACS}))
    sizes = count_examples(accounted)
    return {
        "training_pmacs": accounted.training_pmacs(sizes, cost=costs.__getitem__),
        "single_variant_pmacs": accounted.training_pmacs(sizes, largest_only=True, cost=costs.__getitem__),
    }
