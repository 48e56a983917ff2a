"""From a recipe to a federation: the parts of every layer, put together."""

from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedfeast.data import (
    Examples,
    Normalisation,
    Preparation,
    ServerSplit,
    ShardedExamples,
    load_dataset,
    measure_normalisation,
    split_server_examples,
)
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.graphs.workshop import has_fused_kernels
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Examiner
from fedfeast.federation import (
    Aggregation,
    Client,
    Engine,
    Hostility,
    Method,
    Treatment,
    choose_hostile,
)
from fedfeast.population import (
    Partition,
    Population,
    alpha_data_from_effective,
    partition_by_budget,
)
from fedfeast.randomness import named_generator
from fedfeast.runs.building import build_preparation, build_privacy, build_sgd, build_without_data
from fedfeast.runs.recipe import Recipe
from fedfeast.runs.roster import Roster, read_roster


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
    validation: Examiner
    test: Examiner
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of weights."""
        return torch.float64 if self.recipe.engine.precision == "float64" else torch.float32

    def engine(self) -> Engine:
        """Return the engine the recipe names, or the one that suits the device."""
        if self.recipe.population.source == "fleet":
            raise InvalidInput("this run's clients are a fleet's: it is trained by flwr run, as docs/fleet.md says.")
        parts = (self.method, self.examples, self.preparation, build_sgd(self.recipe, self.method), self.recipe.seed)
        if engine_name(self.recipe, self.device) == "eager":
            return EagerEngine(*parts, self.dtype, self.device)
        activations = torch.bfloat16 if precision_name(self.recipe, self.device) == "bfloat16" else self.dtype
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

    def treatment(self) -> Treatment:
        """Return what is done to replies, before the first round."""
        recipe, hostility = self.recipe, None
        if recipe.hostile.share > 0:
            liars = choose_hostile(self.participants, recipe.hostile.share, named_generator(recipe.seed, "hostile"))
            hostility = Hostility(liars, recipe.hostile.enlargement)
        return Treatment(Aggregation(**recipe.aggregation.model_dump()), build_privacy(recipe), hostility, recipe.seed)

    def initial_weights(self) -> torch.Tensor:
        """Draw the global vector a run starts from."""
        flat = self.method.network.initial_weights(named_generator(self.recipe.seed, "weights"))
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


def choose_device(recipe: Recipe) -> torch.device:
    """Return CUDA where there is one and the recipe does not say cpu; a run may be evaluated on another machine."""
    return torch.device("cuda" if recipe.engine.device != "cpu" and torch.cuda.is_available() else "cpu")


def require_device(recipe: Recipe) -> torch.device:
    """Return the device to train on; a recipe that asks for CUDA gets nothing less."""
    if recipe.engine.device == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("engine.device = 'cuda', but this machine has no CUDA device: set engine.device=cpu.")
    return choose_device(recipe)


def engine_name(recipe: Recipe, device: torch.device) -> str:
    """Return which engine trains on a device; settings that it does not know are errors."""
    name = recipe.engine.name
    if name == "auto":
        name = "graphs" if has_fused_kernels(device) else "eager"
    if name == "graphs" and device.type != "cuda":
        raise InvalidInput(
            "engine.name = 'graphs' needs a CUDA device, and training is on the CPU: set engine.name=eager."
        )
    if name == "eager" and recipe.engine.precision == "bfloat16":
        raise InvalidInput(
            "engine.precision = 'bfloat16' is known to the graph engine alone: set engine.precision=float32."
        )
    return name


def precision_name(recipe: Recipe, device: torch.device) -> str:
    """Return the precision that training runs in."""
    if recipe.engine.precision != "auto":
        return recipe.engine.precision
    return "bfloat16" if engine_name(recipe, device) == "graphs" else "float32"


def assemble(recipe: Recipe) -> Federation:
    """Build the federation of a recipe: network, variants, method, population, data."""
    method, _, population, participants = build_without_data(recipe)
    device, split = choose_device(recipe), split_data(recipe)
    pool = split.pool
    if recipe.population.source == "fleet":
        pool = pool.select(torch.empty(0, dtype=torch.int64))  # the clients' examples are theirs
        roster = read_roster(Path(str(recipe.population.file)))
        clients, partition = roster.clients, roster.partition()
    else:
        partition = partition_pool(recipe, population, pool.labels.numpy())
        clients = clients_of(population, partition, pool.labels.numpy())
    calibration = split.calibration.to(device)
    return Federation(
        recipe=recipe,
        population=population,
        partition=partition,
        examples=ShardedExamples(pool.to(device), partition.shards),
        preparation=build_preparation(recipe, split.normalisation),
        method=method,
        clients=clients,
        participants=participants,
        validation=Examiner(calibration, split.validation.to(device), split.normalisation),
        test=Examiner(calibration, split.test.to(device), split.normalisation),
        device=device,
    )


class SplitData(NamedTuple):
    """A data set as the clients' pool and the server's own examples."""

    pool: Examples
    validation: Examples
    calibration: Examples
    test: Examples
    normalisation: Normalisation


def split_data(recipe: Recipe) -> SplitData:
    """Load the recipe's data set; hold out the server's examples."""
    dataset = load_dataset(recipe.data.name, recipe.data.folder)
    server = dataset.train if dataset.server is None else dataset.server
    server_labels = None if dataset.server is None else dataset.server.labels.numpy()
    split = split_off_server_examples(recipe, dataset.train.labels.numpy(), server_labels)
    # Where the server has examples of its own, the clients' pool stays mapped from its file.
    pool = dataset.train if dataset.server is not None else dataset.train.select(torch.from_numpy(split.clients))
    validation, calibration = (
        server.select(torch.from_numpy(chosen)) for chosen in (split.validation, split.calibration)
    )
    normalisation = dataset.normalisation or measure_normalisation(pool.images)
    return SplitData(pool, validation, calibration, dataset.test, normalisation)


def clients_of(population: Population, partition: Partition, labels: np.ndarray) -> tuple[Client, ...]:
    """Return what the server knows of each simulated client, given the labels of the pool."""
    sizes, held_classes = partition.shards.sizes.tolist(), partition.shards.held_classes(labels)
    return tuple(
        Client(index, name, float(population.budgets_macs[index]), sizes[index], held)
        for index, (name, held) in enumerate(zip(population.names, held_classes, strict=True))
    )


def split_off_server_examples(
    recipe: Recipe, labels: np.ndarray, server_labels: np.ndarray | None = None
) -> ServerSplit:
    """Split the training examples between the server and the clients, unless the server has its own."""
    section, generator = recipe.data, named_generator(recipe.seed, "server examples")
    numbers = (section.validation_examples, section.calibration_examples)
    return split_server_examples(labels, *numbers, generator, server_labels)


def partition_pool(recipe: Recipe, population: Population, labels: np.ndarray) -> Partition:
    """Divide the client pool, given by its labels, among the clients."""
    section = recipe.partition
    shares = population.data_shares(recipe.population.gamma, recipe.population.cap_macs)
    alpha_data = section.alpha_data
    if alpha_data is None:
        assert section.alpha_eff is not None
        classes = recipe.data.facts.classes
        alpha_data = alpha_data_from_effective(section.alpha_eff, len(labels), classes, population.num_clients)
    generator = named_generator(recipe.seed, "partition")
    return partition_by_budget(labels, shares, alpha_data, generator, min_shard=section.min_shard)
