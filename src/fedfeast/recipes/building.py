"""From a recipe to the parts of every floor, each built by the section that describes it."""

from pathlib import Path

import numpy as np

from fedfeast.data import Augmentation, Mixing, Normalisation, Preparation, ServerSplit, split_server_examples
from fedfeast.errors import InvalidInput
from fedfeast.federation import LocalSgd, Method, Parts, Privacy
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
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.sections import PopulationSection
from fedfeast.variants import read_cache


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


def build_server_split(recipe: Recipe, labels: np.ndarray, server_labels: np.ndarray | None = None) -> ServerSplit:
    """Split the training examples between the server and the clients, unless the server has its own."""
    section, generator = recipe.data, named_generator(recipe.seed, "server examples")
    numbers = (section.validation_examples, section.calibration_examples)
    return split_server_examples(labels, *numbers, generator, server_labels)


def build_partition(recipe: Recipe, population: Population, labels: np.ndarray) -> Partition:
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


def build_preparation(recipe: Recipe, normalisation: Normalisation) -> Preparation:
    """Return how clients turn their examples into mini-batches."""
    section = recipe.augmentation
    augmentation = Augmentation(section.crop_padding, section.flip, section.randaugment)
    training = recipe.training
    return Preparation(training.batch_size, training.local_epochs, augmentation, build_mixing(recipe), normalisation)


def build_mixing(recipe: Recipe) -> Mixing | None:
    """Return the batch mixing, or None where the recipe has none."""
    if recipe.augmentation.mixing == "off":
        return None
    return Mixing(recipe.augmentation.mixup_beta, recipe.augmentation.cutmix_beta)


def build_sgd(recipe: Recipe, method: Method) -> LocalSgd:
    """Return the optimiser of the clients' local steps."""
    return method.optimiser(LocalSgd(recipe.training.weight_decay, recipe.training.clip_norm))


def build_privacy(recipe: Recipe) -> Privacy | None:
    """Return what clients do for their privacy, or None where the recipe asks for nothing."""
    section = recipe.privacy
    if section.clip_norm is None:
        return None
    return Privacy(section.clip_norm, section.noise_multiplier, section.delta)
