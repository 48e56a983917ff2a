"""From a recipe to the parts of every floor, each built by the section that describes it."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedfeast.data import Augmentation, Mixing, Normalisation, Preparation
from fedfeast.data.class_prior import ClassPrior
from fedfeast.data.sequences import SequenceAugmentation
from fedfeast.data.tasks import task_named
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Selection
from fedfeast.federation import CentralPrivacy, LocalSgd, Method, Pace, Parts, Privacy, ServerOptimiser, Wire
from fedfeast.methods import find_method
from fedfeast.networks import ElasticNetwork, ElasticResNet, ResNet, SearchSpace
from fedfeast.networks.built import Builder, BuiltNetwork
from fedfeast.networks.built.builder import source_file
from fedfeast.networks.shipped import BUILDERS, find_builder
from fedfeast.own_code import find_own, offer
from fedfeast.population import (
    Partition,
    Population,
    Shards,
    alpha_data_from_effective,
    authors_population,
    paper_population,
    partition_as_authors,
    partition_by_budget,
    partition_stream,
    read_population,
    zipf_population,
)
from fedfeast.population.authors import authors_shares
from fedfeast.population.natural import ClientDivision, assign_budgets, natural_partition
from fedfeast.population.partition import PerClient, are_classes
from fedfeast.population.speeds import pareto_speeds, read_speeds
from fedfeast.randomness import named_generator
from fedfeast.recipes.fitting import space_of
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.sections import PopulationSection
from fedfeast.recipes.splitting import DataSplit, NaturalSplit, TrainingDivision
from fedfeast.recipes.suitability import MEMBERS, SEARCHED
from fedfeast.variants import Variant, VariantCache, read_cache
from fedfeast.variants.members import Score, choose_members
from fedfeast.variants.search import search_cache


def build_method(recipe: Recipe) -> tuple[Method, Parts]:
    """Build the method from its networks and cached variants."""
    parts = build_parts(recipe)
    return find_method(recipe.method_name).build(parts, **recipe.method.model_dump(exclude={"name"})), parts


def build_parts(recipe: Recipe) -> Parts:
    """Return what a method is built from: networks for the recipe's data, cached variants, rounds."""
    elastic = build_network(recipe)
    resnet = build_resnet(recipe) if recipe.network.builder is None else None
    return Parts(elastic, build_cache(recipe, elastic), resnet, recipe.training.rounds)


def build_network(recipe: Recipe) -> ElasticNetwork:
    """Return the elastic network for the data set's inputs: the ResNet, or a builder's."""
    facts, section = recipe.data.facts, recipe.network
    if section.builder is not None:
        builder = find_builder(section.builder).with_choices(**section.choices).with_options(**section.options)
        dtype = torch.int64 if facts.kind == "tokens" else torch.float32
        network = BuiltNetwork(builder, facts.known, facts.input_shape, dtype)
        if network.output_shape != facts.output_shape:
            raise InvalidInput(
                f"builder {builder.name} makes {list(network.output_shape)} of an example, and {facts.task} on "
                f"{recipe.data.name} needs {list(facts.output_shape)}: end it with as many outputs, which the builder "
                "may ask for as classes."
            )
        return network
    return ElasticResNet(space_of(recipe.data, section), section.branch, section.branch_scale)


def builder_settings(builder: Builder) -> dict[str, Any]:
    """Return the settings that name a builder which the caller's program holds."""
    function = builder.function
    if builder.name in BUILDERS and BUILDERS[builder.name].function is function:
        name = builder.name
    elif "<locals>" in function.__qualname__:
        raise InvalidInput(
            f"network = {builder.name} is made within a function, so that no later run could find it: "
            "put it at the top of a file."
        )
    else:
        name = offer(builder, source_file(function), builder.name, "network")
    choices = {choice: list(values) for choice, values in builder.choices.items()}
    return {"network.builder": name, "network.choices": choices, "network.options": dict(builder.options)}


def build_cache(recipe: Recipe, network: ElasticNetwork) -> VariantCache:
    """Return the variants that are trained and served: of a file, searched, or members chosen from a builder's."""
    section = recipe.variants
    if section.cache == SEARCHED:
        assert isinstance(network, ElasticResNet)
        return _searched_cache(network.space, targets_of(recipe), recipe.seed)
    if section.cache != MEMBERS:
        return read_cache(section.cache, network, section.ties)
    assert isinstance(network, BuiltNetwork)
    return choose_members(network, section.num_targets, named_generator(recipe.seed, "members"), find_score(recipe))


@lru_cache(maxsize=8)  # a run's parts are built several times; a search takes seconds
def _searched_cache(space: SearchSpace, targets_macs: tuple[float, ...], seed: int) -> VariantCache:
    """Search the fittest network within every target; several may have the same, which then counts once."""
    network = ElasticResNet(space)
    found = search_cache(space, targets_macs, named_generator(seed, "search"))
    variants = {one.macs: Variant.of(network, one.architecture) for one in reversed(found)}
    return VariantCache.of(list(variants.values()))


def targets_of(recipe: Recipe) -> tuple[float, ...]:
    """Return the MAC targets of a recipe's search, evenly or geometrically spaced."""
    section = recipe.variants
    space = np.linspace if section.spacing == "even" else np.geomspace
    spaced = space(section.least_target_macs, section.greatest_target_macs, section.num_targets)
    return tuple(float(target) for target in spaced)


def find_score(recipe: Recipe) -> Score | None:
    """Return the function by which members are chosen, where the recipe names one."""
    name = recipe.variants.score
    if name is None:
        return None
    score = find_own(name, "variants.score")
    if not callable(score):
        raise InvalidInput(f"variants.score = {name!r} names no function there: give one of a member.")
    return cast(Score, score)


def build_resnet(recipe: Recipe) -> ResNet:
    """Return the compared methods' network for the data set's images and classes."""
    facts = recipe.data.facts
    return ResNet(
        **recipe.resnet.model_dump(),
        image_size=facts.side,
        image_channels=facts.channels,
        classes=facts.classes,
        branch_scale=recipe.network.branch_scale,
    )


def build_population(recipe: Recipe, split: DataSplit | None = None) -> Population:
    """Return the clients' budgets from the source that the recipe names; the data's own clients are a split's."""
    section, seed = recipe.population, recipe.seed
    if section.source == "data":
        assert split is not None
        assert split.natural is not None
        return _natural_population(section, seed, split.natural)
    if section.source == "paper":
        return paper_population()
    if section.source == "authors":
        return authors_population(
            section.num_clients,
            exponent=section.exponent,
            num_ranks=section.num_ranks,
            least_macs=section.least_macs,
            greatest_macs=section.greatest_macs,
        )
    if section.source in ("file", "fleet"):
        if section.file is None and section.source == "fleet":
            raise InvalidInput(
                "population.source = 'fleet', and no client has joined yet: start it as docs/fleet.md says."
            )
        if section.file is None:
            raise InvalidInput("population.source = 'file' needs population.file: set it to the CSV of budgets.")
        return read_population(Path(section.file))
    return _zipf_population(section, seed, section.num_clients)


def _zipf_population(section: PopulationSection, seed: int, num_clients: int) -> Population:
    return zipf_population(
        num_clients,
        named_generator(seed, "population"),
        exponent=section.exponent,
        num_ranks=section.num_ranks,
        least_macs=section.least_macs,
        greatest_macs=section.greatest_macs,
    )


def _natural_population(section: PopulationSection, seed: int, split: NaturalSplit) -> Population:
    """Return the data's training clients with budgets of a file, by name, or drawn and dealt out as wished."""
    names = split.division.names
    if section.pooled:
        return Population(np.array([section.greatest_macs]), names)
    if section.file is not None:
        return Population(_budgets_by_name(section.file, split.division), names)
    drawn = _zipf_population(section, seed, len(names)).budgets_macs
    if section.correlation is not None and len(names) > 1 and np.ptp(split.sizes) == 0:
        raise InvalidInput(
            f"population.correlation = {section.correlation:g} has no effect where every client has {split.sizes[0]} "
            "examples: leave it out, or let data.most_examples leave them more."
        )
    if section.correlation is not None:
        drawn = assign_budgets(drawn, split.sizes, section.correlation, named_generator(seed, "correlation"))
    return Population(drawn, names)


def _budgets_by_name(file: str, division: ClientDivision) -> NDArray[np.float64]:
    listed = read_population(Path(file), named=True)
    budgets = dict(zip(listed.names, listed.budgets_macs, strict=True))
    known = set(division.all_names)
    unknown = next((name for name in listed.names if name not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, division.all_names, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InvalidInput(f"{file} has a budget for {unknown!r}, and the data have no such client{hint}: correct it.")
    missing = next((name for name in division.names if name not in budgets), None)
    if missing is not None:
        raise InvalidInput(f"{file} has no budget for the client {missing!r}: add a row for everyone who trains.")
    return np.array([budgets[name] for name in division.names])


def lift_budgets(section: PopulationSection, population: Population, method: Method) -> Population:
    """Return the population with budgets below the smallest network lifted to it, where the recipe wants that."""
    least = method.least_macs
    # Where nobody affords anything, that is no matter of the lowest budgets.
    is_wanted = section.below_smallest == "lift" and bool((population.budgets_macs >= least).any())
    return population.lifted(least) if is_wanted else population


def choose_participants(section: PopulationSection, population: Population, method: Method) -> tuple[int, ...]:
    """Return the clients that train; a budget below the smallest network is an error unless excluded."""
    budgets, least = population.budgets_macs, method.least_macs
    below = np.flatnonzero(budgets < least)
    if len(below) == len(budgets):
        raise InvalidInput(
            f"no client can afford the smallest network, {least} MACs (the largest budget is {budgets.max():.0f}): "
            f"{_how_to_afford(method)}."
        )
    if len(below) and section.below_smallest == "error":
        raise InvalidInput(
            f"client {population.names[below[0]]} has a budget of {budgets[below[0]]:.0f} MACs, below the smallest "
            f"network's {least} ({len(below)} of {len(budgets)} clients): raise {_budget_setting(section)}, "
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
    smallest = method.operating_points()[0].price
    if (budgets < smallest).all():
        raise InvalidInput(
            f"clients train, but none can afford the smallest network that is served, {smallest} MACs (the largest "
            f"budget is {budgets.max():.0f}): {_how_to_afford(method)}."
        )
    return participants


def _how_to_afford(method: Method) -> str:
    nominal = getattr(method, "nominal_macs", None)
    if nominal is None:
        return "raise the budgets or give the method smaller networks"
    return f"prices follow method.nominal_macs = {nominal:.0f}; set it to this network's MACs or raise the budgets"


def _budget_setting(section: PopulationSection) -> str:
    is_drawn = section.source in ("zipf", "authors", "data") and section.file is None
    if is_drawn:
        return "population.least_macs"
    return "the budgets" if section.file is None else f"the budgets of {section.file}"


def build_partition(
    recipe: Recipe,
    population: Population,
    labels: np.ndarray,
    owners: np.ndarray | None = None,
    division: TrainingDivision | None = None,
) -> Partition:
    """Divide the client pool, given by its labels, among the clients, unless data or a file say whose they are."""
    if owners is not None:
        return natural_partition(owners, population.num_clients)
    if division is not None and division.listed is not None:
        return _listed_partition(population, division)
    if not are_classes(labels):
        raise InvalidInput(
            f"population.source = {recipe.population.source!r} divides examples by their classes, and those of "
            f"{recipe.data.name} have none: set population.source=data."
        )
    if division is not None and division.design_labels is not None:
        labels = division.design_labels
    partition = _draw_partition(recipe, population, labels)
    return partition if division is None else replace(partition, notes={**partition.notes, **division.notes})


def _draw_partition(recipe: Recipe, population: Population, labels: np.ndarray) -> Partition:
    section, facts, shared = recipe.partition, recipe.data.facts, recipe.population
    alpha = _build_concentration(recipe, len(labels), population.num_clients)
    if section.rule == "authors":
        stream = partition_stream(facts.train_examples, population.num_clients, facts.server_examples > 0)
        shares = authors_shares(population, shared.gamma, shared.cap_macs)
        return partition_as_authors(labels, shares, alpha, stream, min_shard=section.min_shard)
    if section.class_order == "permuted":
        # The order in which classes are divided is that of their labels.
        labels = named_generator(recipe.seed, "class order").permutation(facts.classes)[labels]
    shares = population.data_shares(shared.gamma, shared.cap_macs)
    generator = named_generator(recipe.seed, "partition")
    return partition_by_budget(labels, shares, alpha, generator, min_shard=section.min_shard)


def _build_concentration(recipe: Recipe, num_examples: int, num_clients: int) -> float | PerClient:
    """Return alpha_data, or the concentration that all clients have alike."""
    section = recipe.partition
    if section.alpha_client is not None:
        return PerClient(section.alpha_client)
    if section.alpha_data is not None:
        return section.alpha_data
    assert section.alpha_eff is not None
    return alpha_data_from_effective(section.alpha_eff, num_examples, recipe.data.facts.classes, num_clients)


def _listed_partition(population: Population, division: TrainingDivision) -> Partition:
    """Return the shards of a file, as positions in the pool."""
    assert division.listed is not None
    shards = division.listed.arranged(population.names)
    order = np.searchsorted(division.split.clients, shards.order).astype(np.int64)
    shares = shards.sizes / len(order)
    moves = np.empty((0, 2), dtype=np.int64)
    return Partition(Shards(order, shards.offsets), shares, shares, moves, division.notes)


def build_preparation(recipe: Recipe, normalisation: Normalisation | None, method: Method) -> Preparation:
    """Return how clients turn their examples into mini-batches."""
    section, training, facts = recipe.augmentation, recipe.training, recipe.data.facts
    return Preparation(
        training.batch_size,
        training.local_epochs,
        Augmentation(section.crop_padding, section.flip, section.randaugment, section.crop_fill),
        build_mixing(recipe),
        normalisation,
        task_named(facts.task),
        SequenceAugmentation(section.time_shift, section.noise, section.mask_share, facts.vocabulary),
        method.network.draws,
        training.last_batch,
        training.least_distinct,
        ClassPrior(training.class_prior, facts.classes) if training.class_prior else None,
    )


def build_mixing(recipe: Recipe) -> Mixing | None:
    """Return the batch mixing, or None where the recipe has none."""
    section = recipe.augmentation
    if section.mixing == "off":
        return None
    # Ten decimals first: a product such as 0.55 * 100 lies a little above the whole number it means.
    until = ceil(round(section.mixing_until * recipe.training.rounds, 10))
    num_rounds = None if section.mixing_until == 1 else until
    return Mixing(section.mixup_beta, section.cutmix_beta, section.mixing, num_rounds)


def build_selection(recipe: Recipe) -> Selection:
    """Return by what the served round is chosen."""
    section = recipe.evaluation
    return Selection(section.selection, section.score, tuple(section.anchors or ()))


def build_sgd(recipe: Recipe, method: Method) -> LocalSgd:
    """Return the optimiser of the clients' local steps: the recipe's, where the method has no other."""
    training = recipe.training
    return method.optimiser(
        LocalSgd(
            training.weight_decay, training.clip_norm, training.momentum, training.learning_rate, training.unreached
        )
    )


def build_server(recipe: Recipe, method: Method) -> ServerOptimiser:
    """Return what the server does with a merged round: the recipe's, where the method has no other."""
    return method.server_optimiser(ServerOptimiser(**recipe.server.model_dump()))


def build_wire(recipe: Recipe) -> Wire:
    """Return in which form weights travel."""
    settings = recipe.wire.model_dump()
    if recipe.engine.precision != "float64":  # the weights are float32 as they are
        settings |= {way: "lossless" for way in ("down", "up") if settings[way] == "float32"}
    return Wire(**settings)


def build_privacy(recipe: Recipe) -> Privacy | None:
    """Return what clients do for their privacy, or None where the recipe asks for nothing of them."""
    section = recipe.privacy
    if section.clip_norm is None or section.mechanism != "local":
        return None
    return Privacy(section.clip_norm, section.noise_multiplier, section.delta)


def build_central_privacy(recipe: Recipe) -> CentralPrivacy | None:
    """Return what a trusted server does for clients' privacy, or None where the recipe asks for nothing of it."""
    section = recipe.privacy
    if section.clip_norm is None or section.mechanism != "central":
        return None
    amount = (section.clip_norm, section.noise_multiplier, section.delta)
    return CentralPrivacy(*amount, section.usual_examples, section.most_weight, section.least_holders)


def build_pace(recipe: Recipe) -> Pace:
    """Return how many clients are at work at once, and how many answers a merge waits for."""
    section, at_once = recipe.fleet, recipe.training.clients_per_round
    buffer = None
    if section.mode == "buffered":
        buffer = section.buffer or max(ceil(at_once / 2), section.least_answers)
    return Pace(at_once, buffer, section.staleness_exponent, section.deadline_seconds)


def build_speeds(recipe: Recipe, names: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the simulated clients' speeds in MACs a second; None where nobody looks at a clock."""
    section = recipe.simulation
    if section.names_file:
        return read_speeds(str(section.speeds), names)
    if section.speeds == "pareto":
        generator = named_generator(recipe.seed, "speeds")
        return pareto_speeds(len(names), section.macs_per_second, section.tail, generator)
    has_clock = section.speeds is not None or recipe.fleet.mode == "buffered"
    return np.full(len(names), section.macs_per_second) if has_clock else None
