"""From a recipe to a federation: the parts of every layer, put together."""

from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedfeast.data import (
    Augmentation,
    Examples,
    Mixing,
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
    LocalSgd,
    Method,
    Parts,
    Privacy,
    Treatment,
    choose_hostile,
)
from fedfeast.methods import find_method
from fedfeast.networks import ElasticResNet, ResNet, SearchSpace
from fedfeast.population import (
    Partition,
    Population,
    alpha_data_from_effective,
    paper_population,
    partition_by_budget,
    read_population,
    zipf_population,
)
from fedfeast.randomness import named_generator
from fedfeast.runs.recipe import Recipe
from fedfeast.runs.roster import Roster, read_roster
from fedfeast.runs.sections import PopulationSection
from fedfeast.variants import VariantCache, read_cache


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


def build_preparation(recipe: Recipe, normalisation: Normalisation) -> Preparation:
    """Return how clients turn their examples into mini-batches."""
    section = recipe.augmentation
    augmentation = Augmentation(section.crop_padding, section.flip, section.randaugment)
    training = recipe.training
    return Preparation(training.batch_size, training.local_epochs, augmentation, build_mixing(recipe), normalisation)


class WithoutData(NamedTuple):
    """The parts of a federation that need no data."""

    method: Method
    cache: VariantCache
    population: Population
    participants: tuple[int, ...]


def build_without_data(recipe: Recipe) -> WithoutData:
    """Build method, cache and population, and say who takes part."""
    method, parts = build_method(recipe)
    population = build_population(recipe.population, recipe.seed)
    return WithoutData(method, parts.cache, population, choose_participants(recipe.population, population, method))


def build_method(recipe: Recipe) -> tuple[Method, Parts]:
    """Build the method from its networks and cached variants."""
    parts = build_parts(recipe)
    return find_method(recipe.method_name).build(parts, **recipe.method.model_dump(exclude={"name"})), parts


def build_parts(recipe: Recipe) -> Parts:
    """Return what a method is built from: networks for the recipe's data, cached variants, rounds."""
    elastic = build_network(recipe)
    cache = read_cache(recipe.variants.cache, elastic)
    return Parts(elastic, cache, build_resnet(recipe), recipe.training.rounds)


def build_network(recipe: Recipe) -> ElasticResNet:
    """Return the elastic network for the data set's images and classes."""
    facts = recipe.data.facts
    return ElasticResNet(
        SearchSpace(
            **recipe.network.model_dump(),
            image_size=facts.side,
            image_channels=facts.channels,
            classes=facts.classes,
        )
    )


def build_resnet(recipe: Recipe) -> ResNet:
    """Return the compared methods' network for the data set's images and classes."""
    facts = recipe.data.facts
    return ResNet(
        **recipe.resnet.model_dump(), image_size=facts.side, image_channels=facts.channels, classes=facts.classes
    )


def build_population(section: PopulationSection, seed: int) -> Population:
    """Return the clients' budgets from the source that the recipe names."""
    if section.source == "paper":
        return paper_population()
    if section.source in ("file", "fleet"):
        if section.file is None and section.source == "fleet":
            raise InvalidInput(
                "population.source = 'fleet', and no client has joined yet: start it as docs/fleet.md says."
            )
        if section.file is None:
            raise InvalidInput("population.source = 'file' needs population.file: set it to the CSV of budgets.")
        return read_population(Path(section.file))
    return zipf_population(
        section.num_clients,
        named_generator(seed, "population"),
        exponent=section.exponent,
        num_ranks=section.num_ranks,
        least_macs=section.least_macs,
        greatest_macs=section.greatest_macs,
    )


def choose_participants(section: PopulationSection, population: Population, method: Method) -> tuple[int, ...]:
    """Return the clients that train; a budget below the smallest network is an error unless excluded."""
    budgets, least = population.budgets_macs, method.least_macs
    below = np.flatnonzero(budgets < least)
    if len(below) == len(budgets):
        raise InvalidInput(
            f"no client can afford the smallest network, {least} MACs (the largest budget is {budgets.max():.0f}): "
            "raise the budgets or give the method smaller networks."
        )
    if len(below) and section.below_smallest == "error":
        raise InvalidInput(
            f"client {population.names[below[0]]} has a budget of {budgets[below[0]]:.0f} MACs, below the smallest "
            f"network's {least} ({len(below)} of {len(budgets)} clients): raise the budgets, "
            "give the method a smaller network, or set population.below_smallest=exclude to leave them out."
        )
    distinct, of_client = np.unique(budgets, return_inverse=True)
    takes_part = np.array([method.trains(float(budget)) for budget in distinct])
    participants = tuple(np.flatnonzero(takes_part[of_client]).tolist())
    if not participants:
        raise InvalidInput(
            f"no client can afford what the method trains (the largest budget is {budgets.max():.0f} MACs): "
            "raise the budgets or choose a smaller variant."
        )
    return participants


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


def build_sgd(recipe: Recipe, method: Method) -> LocalSgd:
    """Return the optimiser of the clients' local steps."""
    return method.optimiser(LocalSgd(recipe.training.weight_decay, recipe.training.clip_norm))


def build_privacy(recipe: Recipe) -> Privacy | None:
    """Return what clients do for their privacy, or None where the recipe asks for nothing."""
    section = recipe.privacy
    if section.clip_norm is None:
        return None
    return Privacy(section.clip_norm, section.noise_multiplier, section.delta)


def build_mixing(recipe: Recipe) -> Mixing | None:
    """Return the batch mixing, or None where the recipe has none."""
    if recipe.augmentation.mixing == "off":
        return None
    return Mixing(recipe.augmentation.mixup_beta, recipe.augmentation.cutmix_beta)
