"""From a recipe to a federation: the parts of every layer, put together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedfeast.data import (
    Augmentation,
    Mixing,
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
from fedfeast.federation import Client, Engine, LocalSgd, Method, Parts
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
        training = self.recipe.training
        sgd = self.method.optimiser(LocalSgd(training.weight_decay, training.clip_norm))
        parts = (self.method, self.examples, self.preparation, sgd, self.recipe.seed)
        if engine_name(self.recipe, self.device) == "eager":
            return EagerEngine(*parts, self.dtype, self.device)
        activations = torch.bfloat16 if precision_name(self.recipe, self.device) == "bfloat16" else self.dtype
        return GraphEngine(*parts, Precision(self.dtype, activations), self.device)

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
    dataset = load_dataset(recipe.data.name, recipe.data.folder)
    server = dataset.train if dataset.server is None else dataset.server
    server_labels = None if dataset.server is None else dataset.server.labels.numpy()
    split = split_off_server_examples(recipe, dataset.train.labels.numpy(), server_labels)
    # Where the server has examples of its own, the clients' pool stays mapped from its file.
    pool = dataset.train if dataset.server is not None else dataset.train.select(torch.from_numpy(split.clients))
    partition = partition_pool(recipe, population, pool.labels.numpy())
    normalisation = dataset.normalisation or measure_normalisation(pool.images)
    device = choose_device(recipe)
    calibration = server.select(torch.from_numpy(split.calibration)).to(device)
    validation = server.select(torch.from_numpy(split.validation)).to(device)
    sizes, held_classes = partition.shards.sizes.tolist(), partition.shards.held_classes(pool.labels.numpy())
    return Federation(
        recipe=recipe,
        population=population,
        partition=partition,
        examples=ShardedExamples(pool.to(device), partition.shards),
        preparation=Preparation(
            recipe.training.batch_size,
            recipe.training.local_epochs,
            Augmentation(recipe.augmentation.crop_padding, recipe.augmentation.flip, recipe.augmentation.randaugment),
            build_mixing(recipe),
            normalisation,
        ),
        method=method,
        clients=tuple(
            Client(index, name, float(population.budgets_macs[index]), sizes[index], held)
            for index, (name, held) in enumerate(zip(population.names, held_classes, strict=True))
        ),
        participants=participants,
        validation=Examiner(calibration, validation, normalisation),
        test=Examiner(calibration, dataset.test.to(device), normalisation),
        device=device,
    )


class WithoutData(NamedTuple):
    """The parts of a federation that need no data."""

    method: Method
    cache: VariantCache
    population: Population
    participants: tuple[int, ...]


def build_without_data(recipe: Recipe) -> WithoutData:
    """Build method, cache and population, and say who takes part."""
    parts = build_parts(recipe)
    method = find_method(recipe.method_name).build(parts, **recipe.method.model_dump(exclude={"name"}))
    population = build_population(recipe.population, recipe.seed)
    return WithoutData(method, parts.cache, population, choose_participants(recipe.population, population, method))


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
    if section.source == "file":
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


def build_mixing(recipe: Recipe) -> Mixing | None:
    """Return the batch mixing, or None where the recipe has none."""
    if recipe.augmentation.mixing == "off":
        return None
    return Mixing(recipe.augmentation.mixup_beta, recipe.augmentation.cutmix_beta)
