"""The protocol that the runs of a study share: where they must agree, and how it is told."""

from collections.abc import Mapping, Sequence

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import published
from fedfeast.federation import ServerOptimiser
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.building import build_selection
from fedfeast.recipes.recipe import differing_settings, packaged_recipes
from fedfeast.studies.study import LETTER, RECIPES
from fedfeast.units import format_macs

# Choice: who computes, how exactly, how often it is saved and what is followed meanwhile is no part of the protocol
# (docs/decisions/016).
ALWAYS_FREE = ("name", "seed", "method", "engine", "checkpoint", "data.folder", "evaluation.sizes")


def is_of(setting: str, names: Sequence[str]) -> bool:
    """Return whether a setting is one of the names or lies in a section that is."""
    return any(setting == name or setting.startswith(f"{name}.") for name in names)


def own_of_methods(base: Recipe) -> tuple[str, ...]:
    """Return the settings in which methods differ by the authors' letter: by what their served round is chosen."""
    return ("evaluation.selection", "evaluation.anchors") if base.name == RECIPES[LETTER] else ()


def refuse_disagreement(recipes: Mapping[str, Recipe], varied: Sequence[str]) -> None:
    """Refuse to compare runs, given by label, that differ in more than the settings varied on purpose."""
    (first_label, first), *others = recipes.items()
    for label, recipe in others:
        for key, (one, other) in differing_settings([first, recipe]).items():
            if not is_of(key, (*ALWAYS_FREE, *varied)):
                raise InvalidInput(
                    f"the runs {first_label!r} and {label!r} cannot be compared: {key} is {one!r} in the one and "
                    f"{other!r} in the other; runs of a study must share their protocol."
                )


def describe_protocol(base: Recipe, seeds: Sequence[int], rounds: str = "") -> dict[str, str]:
    """Return what all arms share, for people, by name; words say how many rounds where arms differ in that."""
    training = base.training
    return {
        "data": f"{base.data.name}; {base.data.validation_examples} validation and "
        f"{base.data.calibration_examples} calibration examples with the server",
        "population": _describe_population(base),
        "training": f"{rounds or f'{training.rounds} rounds'} of {training.clients_per_round} clients, "
        f"{training.local_epochs} local {'epoch' if training.local_epochs == 1 else 'epochs'}, "
        f"batches of {training.batch_size}",
        "optimisation": f"SGD, learning rate {training.learning_rate:g} ({training.schedule}"
        + (f" after {training.warmup_rounds} rounds of warm-up), " if training.warmup_rounds else "), ")
        + (f"momentum {training.momentum:g}, " if training.momentum else "")
        + f"weight decay {training.weight_decay:g}, gradients clipped to {training.clip_norm:g}",
        **_describe_server(base),
        "checkpoint": f"the best validated one ({build_selection(base).words}), batch normalisation recalibrated at "
        "every operating point",
        "seeds": ", ".join(map(str, seeds)),
    }


def _describe_server(base: Recipe) -> dict[str, str]:
    """Return what the server does beside merging; nothing where it only merges."""
    server, told = base.server, []
    if server.optimiser != "none":
        told.append(f"{server.optimiser}, learning rate {ServerOptimiser(**server.model_dump()).rate:g}")
    if server.lookahead:
        told.append(f"lookahead {server.lookahead:g}")
    if server.average:
        told.append(f"running average {server.average:g}, served where it validates better")
    return {"server": "; ".join(told)} if told else {}


def _describe_population(base: Recipe) -> str:
    population, partition = base.population, base.partition
    drawn = f"budgets from Zipf({population.exponent:g})"
    if population.source == "data":
        budgets = drawn if population.file is None else f"budgets of {population.file}"
        return f"the clients that the data have, {budgets}; some are held out for the test"
    names = ("alpha_eff", "alpha_data", "alpha_client")
    alpha = next(f"{name} {value:g}" for name in names if (value := getattr(partition, name)) is not None)
    clients = {
        "paper": "the paper's 100 clients",
        "authors": f"{population.num_clients} clients as the authors drew them, {drawn}",
        "file": f"the clients of {population.file}",
    }.get(population.source, f"{population.num_clients} clients, {drawn}")
    if partition.file is not None:
        return f"{clients}; examples as {partition.file} lists them"
    if partition.rule == "authors":
        alpha += ", divided by the authors' rule" + (", as loaded" if partition.loaded == "as-loaded" else "")
    return f"{clients}; gamma {population.gamma:g}, cap {format_macs(population.cap_macs)} MACs, {alpha}"


def departures(base: Recipe, beside_published: bool = True) -> list[str]:
    """Say in which way a study's base recipe departs from the shipped one and, beside its figures, from the paper's."""
    notes: list[str] = []
    if base.name not in packaged_recipes():
        return notes
    shipped = load_recipe(base.name)
    # Another method is an arm's own choice, with its options.
    of_arms = ("name", "seed", "data.folder", *(["method"] if base.method_name != shipped.method_name else []))
    changed = {key: values for key, values in differing_settings([base, shipped]).items() if not is_of(key, of_arms)}
    if changed:
        told = ", ".join(f"{key} = {ours!r} instead of {theirs!r}" for key, (ours, theirs) in changed.items())
        notes.append(f"Changed against the recipe {shipped.name}: {told}.")
    has_published = beside_published and base.data.name in published.POPULATION_SCORES
    if has_published and base.training.rounds != published.ROUNDS:
        notes.append(
            f"The published figures belong to {published.ROUNDS} rounds; here every run had {base.training.rounds} "
            "unless said otherwise, so a difference is no failed reproduction."
        )
    return notes
