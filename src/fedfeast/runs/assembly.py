"""From a recipe to a federation: the parts of every layer, put together."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedfeast.data import (
    Examples,
    Normalisation,
    Preparation,
    ShardedExamples,
    is_here,
    load_dataset,
    measure_normalisation,
    published_normalisation,
)
from fedfeast.data.tasks import task_named
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.devices import choose_device, choose_engine, limit_memory
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import (
    ClientEvaluator,
    ClientIndex,
    EvaluatingClient,
    Evaluator,
    Held,
    Validation,
    augmented,
)
from fedfeast.federation import (
    Adversary,
    Aggregation,
    Client,
    Engine,
    Method,
    UpdatePolicy,
    choose_adversaries,
)
from fedfeast.planning.outline import Outline, outline
from fedfeast.population import Partition, Population, Shards
from fedfeast.population.partition import are_classes
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import (
    build_partition,
    build_preparation,
    build_privacy,
    build_selection,
    build_sgd,
    build_wire,
)
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.splitting import DataSplit, NaturalSplit, OwnedPlaces, pick, split_dataset
from fedfeast.runs.keeping_back import blank_inputs, input_dtype, keep_back_shards
from fedfeast.runs.roster import Roster, read_roster
from fedfeast.runs.warm_start import warm_start


@dataclass(frozen=True, eq=False)
class Federation:
    """Everything a run works with."""

    recipe: Recipe
    population: Population
    partition: Partition
    examples: ShardedExamples
    preparation: Preparation
    method: Method
    clients: tuple[Client, ...]
    participants: tuple[int, ...]  # the clients that may be sampled
    validation: Validation
    tests: Mapping[str, Evaluator]  # by name, the main one first; none on a server without the data
    device: torch.device
    outline: Outline  # of its start: a fleet's clients may become more
    natural: NaturalSplit | None = None  # the data's own clients, where they take part

    @property
    def test(self) -> Evaluator:
        """The main test set."""
        if not self.tests:
            raise InvalidInput(
                f"the data set {self.recipe.data.name!r} is not here: point data.folder at its files, or go without a "
                "test set."
            )
        return next(iter(self.tests.values()))

    @property
    def participating_sizes(self) -> np.ndarray:
        """How many examples each client holds that may be sampled."""
        return np.take(self.partition.shards.sizes, self.participants)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of weights."""
        return torch.float64 if self.recipe.engine.precision == "float64" else torch.float32

    def engine(self) -> Engine:
        """Return the engine the recipe names, or the one that suits the device."""
        if self.recipe.population.source == "fleet":
            raise InvalidInput("this run's clients are a fleet's: it is trained by flwr run, as docs/fleet.md says.")
        parts = (self.method, self.examples, self.preparation, build_sgd(self.recipe, self.method), self.recipe.seed)
        wanted, is_own = self.recipe.engine, self.recipe.network.builder is not None
        limit_memory(self.device, wanted.memory_gib)
        name, precision = choose_engine(wanted.name, wanted.precision, self.device, is_own)
        if name == "eager":
            return EagerEngine(*parts, self.dtype, self.device)
        activations = torch.bfloat16 if precision == "bfloat16" else self.dtype
        return GraphEngine(*parts, Precision(self.dtype, activations), self.device)

    def with_roster(self, roster: Roster, present: Container[int]) -> "Federation":
        """Return the federation with the clients that have joined, of which those present may be sampled."""
        trained = (client for client in roster.clients if self.method.trains(client.budget_macs))
        participants = tuple(client.index for client in trained if client.index in present)
        return replace(
            self,
            population=roster.population(),
            partition=roster.partition(),
            clients=roster.clients,
            participants=participants,
        )

    def update_policy(self) -> UpdatePolicy:
        """Return what is done to replies, before the first round."""
        recipe, adversary = self.recipe, None
        if recipe.adversary.share > 0:
            generator = named_generator(recipe.seed, "hostile")  # the section's first name: another would draw others
            liars = choose_adversaries(self.participants, recipe.adversary.share, generator)
            adversary = Adversary(liars, recipe.adversary.enlargement, recipe.adversary.claimed_multiple)
        return UpdatePolicy(
            Aggregation(**recipe.aggregation.model_dump()),
            build_privacy(recipe),
            adversary,
            recipe.seed,
            wire=build_wire(recipe),
        )

    def initial_weights(self) -> torch.Tensor:
        """Draw the global vector a run starts from, or take what the recipe names over it."""
        network = self.method.network
        flat = network.initial_weights(named_generator(self.recipe.seed, "weights"))
        if self.recipe.network.weights is not None:
            warm_start(flat, network, self.recipe.network.weights)
        return flat.to(self.device, self.dtype)

    def client_table(self) -> dict[str, Any]:
        """Return one column per fact about the clients: who, which budget, which share was asked and came out."""
        return {
            "name": self.population.names,
            "budget_macs": self.population.budgets_macs.tolist(),
            "num_examples": self.partition.shards.sizes.tolist(),
            "target_share": self.partition.target_shares.tolist(),
            "realized_share": self.partition.realized_shares.tolist(),
            "participates": np.isin(np.arange(len(self.clients)), self.participants).astype(int).tolist(),
        }


def assemble(recipe: Recipe) -> Federation:
    """Build the federation of a recipe: network, variants, method, population, data."""
    built = outline(recipe)
    device, split = choose_device(recipe.engine.device), split_data(recipe)
    divided = _divide(recipe, built, split)
    examples = ShardedExamples(divided.pool.to(device), divided.partition.shards)
    calibration = split.calibration.to(device)
    preparation = build_preparation(recipe, split.normalisation, built.method)
    if recipe.evaluation.calibration_augmented:
        # Drawn once: every network of every round is recalibrated on the same images.
        calibration = augmented(calibration, preparation.augmentation, named_generator(recipe.seed, "calibration"))
    build_selection(recipe).points(built.method.operating_points(), built.population.budgets_macs)  # before training
    task, metric = task_named(recipe.data.facts.task), recipe.metric

    def evaluator(examples: Examples, owned: OwnedPlaces) -> Evaluator:
        clients = None if owned.owners is None else ClientIndex(owned.names, owned.owners)
        parts = (calibration, examples.to(device), split.normalisation, task, clients, metric)
        return Evaluator(*parts, calibration_batch=recipe.evaluation.calibration_batch)

    validation: Validation
    if recipe.evaluation.by == "clients":
        # What the data's own clients keep back was split off the pool; shards that were drawn keep back of the pool.
        held = examples.pool if split.places.validation.owners is None else split.validation.to(device)
        asked = _evaluating_clients(divided, examples, held, built.participants)
        blank = blank_inputs(recipe.data.facts, device)
        validation = ClientEvaluator(task, metric, blank, asked, split.normalisation)
    else:
        validation = evaluator(split.validation, split.places.validation)
    return Federation(
        recipe=recipe,
        population=built.population,
        partition=divided.partition,
        examples=examples,
        preparation=preparation,
        method=built.method,
        clients=divided.clients,
        participants=built.participants,
        validation=validation,
        tests={name: evaluator(split.tests[name], owned) for name, owned in split.places.tests.items()},
        device=device,
        outline=built,
        natural=built.natural,
    )


class _Divided(NamedTuple):
    """Who holds which examples of the pool."""

    pool: Examples
    partition: Partition
    clients: tuple[Client, ...]
    kept_back: Shards | None = None  # to evaluate on; not where the server evaluates, or a fleet's clients have theirs


def _divide(recipe: Recipe, built: Outline, split: "SplitData") -> _Divided:
    """Divide the pool among the clients, which may keep back some of theirs; a fleet's have their own."""
    if recipe.population.source == "fleet":
        roster = read_roster(Path(str(recipe.population.file)))
        return _Divided(split.pool.select(torch.empty(0, dtype=torch.int64)), roster.partition(), roster.clients)
    labels, kept_back = split.pool.labels.numpy(), None
    owners = None if built.natural is None else built.natural.owners
    partition = build_partition(recipe, built.population, labels, owners, split.places.division)
    if recipe.evaluation.by == "clients":
        partition, kept_back = keep_back_shards(recipe, partition, split.places.validation)
    return _Divided(split.pool, partition, clients_of(built.population, partition, labels), kept_back)


def _evaluating_clients(
    divided: _Divided, examples: ShardedExamples, held: Examples, participants: Sequence[int]
) -> list[EvaluatingClient]:
    """Return the simulated clients that evaluate, on what they keep back of the held examples; of a fleet nobody."""
    if divided.kept_back is None:
        return []
    return [
        EvaluatingClient(
            divided.clients[one].name,
            divided.clients[one].budget_macs,
            Held(examples.pool, torch.from_numpy(examples.shards[one])),
            Held(held, torch.from_numpy(divided.kept_back[one])),
        )
        for one in participants
    ]


class SplitData(NamedTuple):
    """A data set as the clients' pool and the server's own examples."""

    pool: Examples
    validation: Examples
    calibration: Examples
    tests: dict[str, Examples]  # the first one is the main one
    normalisation: Normalisation | None  # None: token ids
    places: DataSplit


def split_data(recipe: Recipe) -> SplitData:
    """Load the recipe's data set; hold out the server's examples. A fleet's server that needs none may have none."""
    if needs_no_data(recipe) and not is_here(recipe.data.name, recipe.data.folder):
        return _split_without_data(recipe)
    dataset = load_dataset(recipe.data.name, recipe.data.folder)
    split = split_dataset(recipe, dataset)
    # Where the clients share all of training, the pool stays mapped from its file.
    whole = np.array_equal(split.pool, np.arange(len(dataset.train)))
    pool = dataset.train if whole else pick(dataset, {"train": split.pool})
    normalisation = recipe.data.normalisation or dataset.normalisation
    if normalisation is None and recipe.data.facts.kind != "tokens":
        normalisation = measure_normalisation(pool.inputs)
    return SplitData(
        pool,
        pick(dataset, split.validation.places),
        pick(dataset, split.calibration),
        {name: pick(dataset, one.places) for name, one in split.tests.items()},
        normalisation,
        split,
    )


def needs_no_data(recipe: Recipe) -> bool:
    """Return whether a server can do without the data set: its clients are a fleet's, and they evaluate."""
    return recipe.population.source == "fleet" and recipe.evaluation.by == "clients"


def _split_without_data(recipe: Recipe) -> SplitData:
    """Return a server's part of data that its fleet's clients alone have: their normalisation and no example."""
    section, facts = recipe.data, recipe.data.facts
    normalisation = section.normalisation or published_normalisation(section.name)
    if normalisation is None and facts.kind != "tokens":
        raise InvalidInput(
            f"the data set {section.name!r} is not here to measure its normalisation on: set data.mean and "
            f"data.deviation to {facts.channels} numbers each, one a channel, or point data.folder at its files."
        )
    labels = {"multi-label": torch.uint8, "regression": torch.float32}.get(facts.task, torch.int64)
    nothing = Examples(
        torch.empty(0, *facts.input_shape, dtype=input_dtype(facts)), torch.empty(0, *facts.label_shape, dtype=labels)
    )
    places = DataSplit(np.empty(0, dtype=np.int64), OwnedPlaces({}), {}, {})
    return SplitData(nothing, nothing, nothing, {}, normalisation, places)


def clients_of(population: Population, partition: Partition, labels: np.ndarray) -> tuple[Client, ...]:
    """Return what the server knows of each simulated client, given the labels of the pool."""
    sizes = partition.shards.sizes.tolist()
    held_classes = partition.shards.held_classes(labels) if are_classes(labels) else [()] * len(sizes)
    return tuple(
        Client(index, name, float(population.budgets_macs[index]), sizes[index], held)
        for index, (name, held) in enumerate(zip(population.names, held_classes, strict=True))
    )
