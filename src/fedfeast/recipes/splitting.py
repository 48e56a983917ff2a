"""Which examples do what: the clients' pool, the server's own, and the test sets, as positions in a data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedfeast.data import (
    Dataset,
    Examples,
    NaturalClients,
    ServerSplit,
    split_as_authors,
    split_by_file,
    split_server_examples,
)
from fedfeast.errors import InvalidInput
from fedfeast.population.index_files import ListedShards, read_shards
from fedfeast.population.natural import ClientDivision, ClientRules, divide_clients, keep_some
from fedfeast.population.partition import are_classes
from fedfeast.randomness import named_generator
from fedfeast.recipes.recipe import Recipe

HELD_OUT, KNOWN, ALL = "held-out clients", "known clients", "test"

Positions = NDArray[np.int64]
Places = Mapping[str, Positions]  # part of the data set -> positions in it


@dataclass(frozen=True, eq=False)
class OwnedPlaces:
    """Examples and whose they are."""

    places: Places
    owners: Positions | None = None  # positions in names, in the order of the places
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class NaturalSplit:
    """The data's own clients, and whose each example of the pool is."""

    division: ClientDivision
    owners: Positions  # positions among the training clients

    @property
    def sizes(self) -> Positions:
        """The training examples of every training client."""
        return np.bincount(self.owners, minlength=len(self.division.names))


@dataclass(frozen=True, eq=False)
class TrainingDivision:
    """Which training examples are the clients' and which the server's, and what their shards follow."""

    split: ServerSplit
    design_labels: NDArray[np.generic] | None = None  # by which shards are drawn, where not by those of the pool
    listed: ListedShards | None = None  # whose each example is, by its index in training
    notes: Mapping[str, int] = field(default_factory=dict)  # examples that two have, or nobody


@dataclass(frozen=True, eq=False)
class DataSplit:
    """What every example of a data set is for."""

    pool: Positions  # of the training examples, that the clients train on
    validation: OwnedPlaces
    calibration: Places
    tests: Mapping[str, OwnedPlaces]  # the first one is the run's main test set
    natural: NaturalSplit | None = None
    division: TrainingDivision | None = None  # not of the data's own clients


def pick(dataset: Dataset, places: Places) -> Examples:
    """Return the examples at these places, one part after the other."""
    parts: list[Examples] = [
        getattr(dataset, part).select(torch.from_numpy(positions)) for part, positions in places.items()
    ]
    if not parts:
        return dataset.train.select(torch.empty(0, dtype=torch.int64))
    if len(parts) == 1:
        return parts[0]
    return Examples(torch.cat([one.inputs for one in parts]), torch.cat([one.labels for one in parts]))


def split_dataset(recipe: Recipe, dataset: Dataset) -> DataSplit:
    """Decide which examples the clients train on, which the server holds and which test."""
    # A fleet's server tests by client where its data know them: it may be a trial with the data's own clients.
    if recipe.population.source == "data" or (recipe.population.source == "fleet" and dataset.clients is not None):
        return _split_by_client(recipe, dataset)
    labels = dataset.train.labels.numpy()
    server_labels = None if dataset.server is None else dataset.server.labels.numpy()
    division = divide_training(recipe, labels, server_labels)
    split = division.split
    source = "train" if dataset.server is None or recipe.evaluation.by == "clients" else "server"
    return DataSplit(
        split.clients,
        OwnedPlaces({source: split.validation}),
        {source: split.calibration},
        {ALL: OwnedPlaces({"test": np.arange(len(dataset.test))})},
        division=division,
    )


def divide_training(
    recipe: Recipe, labels: NDArray[np.generic], server_labels: NDArray[np.generic] | None = None
) -> TrainingDivision:
    """Split off the server's examples, and say by what the rest is divided among clients."""
    shards = recipe.partition
    listed = None if shards.file is None else read_shards(shards.file, len(labels))
    split = _split_server(recipe, labels, server_labels, listed)
    held = np.concatenate((split.validation, split.calibration))
    if server_labels is not None or recipe.evaluation.by == "clients":
        held = held[:0]  # of training the server has none to itself
    if listed is not None:
        split = replace(split, clients=_listed_pool(recipe, listed, held, len(labels)))
        unused = len(labels) - len(split.clients) - len(held)
        return TrainingDivision(split, listed=listed, notes={"listed_examples": len(split.clients)} | _counted(unused))
    if shards.loaded == "as-designed":
        return TrainingDivision(split)
    # The authors' shards are positions in the permuted pool; their loader takes them as positions in the data.
    design_labels = labels[split.clients]
    split = replace(split, clients=np.arange(len(split.clients)))
    if server_labels is not None:
        return TrainingDivision(split, design_labels)
    both = {
        "trained_validation_examples": int(np.isin(split.validation, split.clients).sum()),
        "trained_calibration_examples": int(np.isin(split.calibration, split.clients).sum()),
    }
    unused = len(labels) - len(np.union1d(split.clients, held))
    untrained = len(np.unique(labels)) - len(np.unique(labels[split.clients]))
    notes = both | _counted(unused) | ({"untrained_classes": untrained} if untrained else {})
    return TrainingDivision(split, design_labels, notes=notes)


def _split_server(
    recipe: Recipe,
    labels: NDArray[np.generic],
    server_labels: NDArray[np.generic] | None,
    listed: ListedShards | None,
) -> ServerSplit:
    """Return which examples the server holds: by a rule, by a file, or of what the clients' file leaves."""
    section, num_server = recipe.data, None if server_labels is None else len(server_labels)
    numbers = (section.validation_examples, section.calibration_examples)
    if section.split_file is not None:
        return split_by_file(section.split_file, len(labels), num_server)
    if section.split_rule == "authors" and recipe.evaluation.by != "clients":
        return split_as_authors(len(labels), *numbers, num_server)
    server_classes = None if server_labels is None else _classes(server_labels)
    if listed is None or server_labels is not None or recipe.evaluation.by == "clients":
        return deal_server_examples(recipe, _classes(labels), server_classes)
    left = np.setdiff1d(np.arange(len(labels)), listed.shards.order)
    if len(left) < sum(numbers):
        raise InvalidInput(
            f"partition.file leaves the server {len(left)} training examples, and data.validation_examples = "
            f"{numbers[0]} and data.calibration_examples = {numbers[1]}: lower these, or list fewer examples."
        )
    split = deal_server_examples(recipe, _classes(labels), _classes(labels)[left])
    return ServerSplit(split.clients, left[split.validation], left[split.calibration])


def _listed_pool(recipe: Recipe, listed: ListedShards, held: Positions, num_training: int) -> Positions:
    """Return the listed examples, sorted; refuse those that the server holds, and others that nobody does."""
    pool = np.sort(listed.shards.order)
    both = np.intersect1d(pool, held)
    if both.size:
        raise InvalidInput(
            f"the example {both[0]} is a client's by partition.file and the server's by its split ({both.size} such): "
            "give it to one of them."
        )
    unused = num_training - len(pool) - len(held)
    if unused and recipe.partition.unused == "error":
        raise InvalidInput(
            f"partition.file = {recipe.partition.file!r} and the server leave {unused} of {num_training} training "
            "examples to nobody: complete it, or set partition.unused=leave."
        )
    return pool


def _counted(unused: int) -> dict[str, int]:
    return {"unused_examples": unused} if unused else {}


def _split_by_client(recipe: Recipe, dataset: Dataset) -> DataSplit:
    clients, section, seed = dataset.clients, recipe.data, recipe.seed
    if clients is None:
        raise InvalidInput(f"population.source = 'data', and {section.name} has no clients of its own: choose zipf.")
    # Where clients evaluate, the server needs nobody's examples.
    server = 0.0 if recipe.evaluation.by == "clients" else section.server_clients
    rules = ClientRules(section.held_out_clients, server, section.least_examples, section.small_clients)
    sizes = np.bincount(clients.train, minlength=len(clients.names))
    division = divide_clients(clients.names, sizes, rules, named_generator(seed, "clients"))
    labels = dataset.train.labels.numpy()
    pool = np.flatnonzero(division.of_client[clients.train] >= 0)
    if section.most_examples is not None:
        generator = named_generator(seed, "most examples")
        kept = keep_some(division.of_client[clients.train[pool]], labels[pool], section.most_examples, generator)
        pool = pool[kept]
    validation, calibration, pool = _hold_back(recipe, dataset, division, pool)
    tests = _tests(clients, division)
    if recipe.population.pooled:
        # Pooling comes last, so that the examples of every part are those of the same recipe without it.
        division = division.as_one()
        if validation.owners is not None:
            validation = replace(validation, owners=np.zeros_like(validation.owners), names=division.names)
    natural = NaturalSplit(division, division.of_client[clients.train[pool]])
    return DataSplit(pool, validation, calibration, tests, natural)


def _hold_back(
    recipe: Recipe, dataset: Dataset, division: ClientDivision, pool: Positions
) -> tuple[OwnedPlaces, Places, Positions]:
    """Return what validates, what calibrates, and the pool that is left."""
    clients, labels = dataset.clients, dataset.train.labels.numpy()
    assert clients is not None
    if recipe.evaluation.by == "clients":
        owners = division.of_client[clients.train[pool]]
        kept = keep_back(owners, recipe.evaluation.client_share, named_generator(recipe.seed, "kept back"))
        back = OwnedPlaces({"train": pool[kept]}, owners[kept], division.names)
        rest = np.delete(pool, kept)
        return back, {"train": _evenly(rest, recipe.data.calibration_examples)}, rest
    if len(division.server):
        places = _places_of(clients, division.server)
        held = np.concatenate([_classes(getattr(dataset, part).labels.numpy()[at]) for part, at in places.items()])
        split = deal_server_examples(recipe, _classes(labels), held)
        validation, calibration = (_subset(places, chosen) for chosen in (split.validation, split.calibration))
        return OwnedPlaces(validation), calibration, pool
    # One example of every client stays: a client that has none could not train.
    owners = division.of_client[clients.train[pool]]
    staying = keep_some(owners, labels[pool], 1, named_generator(recipe.seed, "staying examples"))
    free = np.delete(pool, staying)
    split = deal_server_examples(recipe, _classes(labels[free]), None)
    rest = np.sort(np.concatenate((pool[staying], free[split.clients])))
    return OwnedPlaces({"train": free[split.validation]}), {"train": free[split.calibration]}, rest


def _tests(clients: NaturalClients, division: ClientDivision) -> dict[str, OwnedPlaces]:
    """Return the test sets: all examples of held-out clients, and the test examples of those that train."""
    tests = {}
    if len(division.held_out):
        places = _places_of(clients, division.held_out)
        of_all = np.concatenate([getattr(clients, part)[at] for part, at in places.items()])
        names = tuple(clients.names[one] for one in division.held_out)
        tests[HELD_OUT] = OwnedPlaces(places, np.searchsorted(division.held_out, of_all), names)
    owners = division.of_client[clients.test]
    known = np.flatnonzero(owners >= 0)
    if len(known):
        tests[KNOWN] = OwnedPlaces({"test": known}, owners[known], division.names)
    if not tests:
        raise InvalidInput(
            "there is nothing to test on: the data hold no test examples, so set data.held_out_clients, e.g. to 0.2."
        )
    return tests


def _places_of(clients: NaturalClients, chosen: Positions) -> dict[str, Positions]:
    """Return all examples of some clients."""
    return {part: np.flatnonzero(np.isin(getattr(clients, part), chosen)) for part in ("train", "test")}


def _subset(places: Places, chosen: Positions) -> dict[str, Positions]:
    """Return the chosen ones of places, counted over all their parts."""
    found, start = {}, 0
    for part, positions in places.items():
        within = chosen[(chosen >= start) & (chosen < start + len(positions))] - start
        if len(within):
            found[part] = positions[within]
        start += len(positions)
    return found


def keep_back(owners: Positions, share: float, generator: np.random.Generator) -> Positions:
    """Return a share of every client's examples, at least one of two or more and never all, sorted."""
    shuffled = generator.permutation(len(owners))
    grouped = shuffled[np.argsort(owners[shuffled], kind="stable")]
    sizes = np.bincount(owners)
    firsts = np.cumsum(sizes) - sizes
    rank = np.arange(len(owners)) - firsts[owners[grouped]]
    wanted = np.where(sizes > 1, np.clip(np.round(share * sizes), 1, sizes - 1), 0)
    return np.sort(grouped[rank < wanted[owners[grouped]]])


def deal_server_examples(recipe: Recipe, classes: Positions, server_classes: Positions | None = None) -> ServerSplit:
    """Split off the server's examples, given all examples' classes, unless it has its own or needs none."""
    section, generator = recipe.data, named_generator(recipe.seed, "server examples")
    if recipe.evaluation.by == "clients":
        # Clients keep back of what they hold. Only networks that none of them affords are recalibrated on these here.
        everything = np.arange(len(classes))
        return ServerSplit(everything, everything[:0], _evenly(everything, section.calibration_examples))
    numbers = (section.validation_examples, section.calibration_examples)
    return split_server_examples(classes, *numbers, generator, server_classes)


def _evenly(positions: Positions, most: int) -> Positions:
    """Return at most so many of the positions, evenly out of all."""
    return positions[np.arange(min(most, len(positions))) * len(positions) // min(most, len(positions))]


def _classes(labels: NDArray[np.generic]) -> Positions:
    """Return what examples are dealt out evenly by: their classes; all are alike where they have none."""
    return labels.astype(np.int64) if are_classes(labels) else np.zeros(len(labels), dtype=np.int64)
