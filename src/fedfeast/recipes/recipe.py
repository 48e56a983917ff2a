"""A recipe: every setting of a run as one validated tree, written in TOML."""

import json
import logging
import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from copy import deepcopy
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from fedfeast.data import DatasetFacts
from fedfeast.data.tasks import Metric, task_named
from fedfeast.errors import InvalidInput
from fedfeast.methods import find_method
from fedfeast.own_code import require_trust, trust
from fedfeast.recipes.fitting import FITTED_RECIPES, fit_to_data
from fedfeast.recipes.sections import (
    AdversarySection,
    AggregationSection,
    AugmentationSection,
    CheckpointSection,
    DataSection,
    EngineSection,
    EvaluationSection,
    FleetSection,
    NetworkSection,
    PartitionSection,
    PopulationSection,
    PrivacySection,
    ResNetSection,
    Section,
    ServerSection,
    SimulationSection,
    TrainingSection,
    VariantsSection,
    WireSection,
    method_section,
)
from fedfeast.recipes.suitability import (
    MEMBERS,
    refuse_beside_central,
    refuse_idle_privacy,
    refuse_noiseless_counts,
    refuse_unsuited_buffer,
    refuse_unsuited_clients,
    refuse_unsuited_division,
    refuse_unsuited_network,
    refuse_unsuited_prior,
    refuse_unsuited_wire,
    suited_augmentation,
)

# Sections that had another name in an earlier release.
FORMER_SECTIONS = {"hostile": "adversary"}
# Settings that may name code of one's own.
CODE_SETTINGS = ("method.name", "network.builder", "variants.score", "data.name")
_LEADING_POINT = re.compile(r"(?<![\w.])\.(?=\d)")


class Recipe(Section):
    """Everything that decides a run's result."""

    name: str  # by which its folder and its results are called
    seed: int = Field(0, ge=0)  # of everything that is drawn
    data: DataSection
    population: PopulationSection = PopulationSection()
    partition: PartitionSection = PartitionSection(alpha_eff=0.45)
    network: NetworkSection = NetworkSection()
    resnet: ResNetSection = ResNetSection()
    variants: VariantsSection = VariantsSection()
    method: SerializeAsAny[Section] = method_section("feast")()
    training: TrainingSection = TrainingSection()
    augmentation: AugmentationSection = AugmentationSection()
    aggregation: AggregationSection = AggregationSection()
    server: ServerSection = ServerSection()
    privacy: PrivacySection = PrivacySection()
    adversary: AdversarySection = AdversarySection()
    wire: WireSection = WireSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoint: CheckpointSection = CheckpointSection()
    engine: EngineSection = EngineSection()
    fleet: FleetSection = FleetSection()
    simulation: SimulationSection = SimulationSection()

    @property
    def method_name(self) -> str:
        """The method's name, as find_method knows it."""
        return str(self.method.model_dump()["name"])

    @property
    def metric(self) -> Metric:
        """The metric by which networks are judged."""
        task, chosen = task_named(self.data.facts.task), self.evaluation.metric
        return task.metric if chosen is None else task.metric_named(chosen)

    @property
    def own_code(self) -> tuple[str, ...]:
        """The code outside the package that it names, as file.py:NAME or module:NAME."""
        return tuple(_codes_of(self.model_dump()).values())

    @model_validator(mode="before")
    @classmethod
    def _choose_members(cls, table: Any) -> Any:
        """Take a builder's own members where no cache is named."""
        network, variants = (table.get(key) if isinstance(table, dict) else None for key in ("network", "variants"))
        if isinstance(network, dict) and network.get("builder") and "cache" not in (variants or {}):
            return {**table, "variants": {**(variants or {}), "cache": MEMBERS}}
        return table

    @model_validator(mode="after")
    def _suit_the_data(self) -> Self:
        """Let what is no image go through nothing unless it is asked for; refuse what does not go together."""
        suited = suited_augmentation(self.augmentation, self.data.facts, self.data.name)
        object.__setattr__(self, "augmentation", suited)
        refuse_unsuited_network(self.data, self.network, self.variants)
        refuse_unsuited_prior(self.training, self.data)
        refuse_unsuited_clients(self.data, self.population, self.evaluation)
        refuse_unsuited_division(self.data, self.population, self.partition, self.evaluation)
        return self

    @model_validator(mode="after")
    def _suit_the_wire(self) -> Self:
        """Refuse a wire that other settings contradict."""
        refuse_unsuited_wire(self.wire, self.fleet, self.privacy)
        return self

    @model_validator(mode="after")
    def _tell_nothing_without_noise(self) -> Self:
        """Refuse what would tell more of clients than their privacy allows."""
        refuse_noiseless_counts(self.evaluation, self.privacy)
        refuse_idle_privacy(self.privacy)
        if self.privacy.mechanism == "central":
            refuse_beside_central(self.training, self.aggregation, self.privacy, find_method(self.method_name))
        return self

    @model_validator(mode="after")
    def _merge_what_can_be_merged(self) -> Self:
        """Refuse buffered merges beside what needs a whole cohort's answers to one vector."""
        if self.fleet.mode == "buffered":
            asked = (self.fleet, self.training, self.aggregation, self.server, self.evaluation, self.wire)
            refuse_unsuited_buffer(*asked)
            if find_method(self.method_name).plans_whole_cohorts:
                raise InvalidInput(
                    f"method.name = {self.method_name!r} gives roles and weights to a cohort as a whole, and "
                    "fleet.mode = 'buffered' merges answers of several: set fleet.mode=synchronous, or choose another."
                )
        if self.simulation.speeds is not None and self.privacy.mechanism == "central":
            raise InvalidInput(
                f"simulation.speeds = {self.simulation.speeds!r} may leave out who is late, and privacy.mechanism = "
                "'central' counts on all who were drawn: leave one of them out."
            )
        return self

    def settings(self) -> dict[str, Any]:
        """Return every set field by its dotted name."""
        return _flatten(self.model_dump(mode="json", exclude_none=True))

    def to_toml(self) -> str:
        """Return the recipe as TOML that load_recipe reads."""
        top: list[str] = []
        tables: list[str] = []
        for key, value in self.model_dump(mode="json", exclude_none=True).items():
            if isinstance(value, dict):
                tables += ["", f"[{key}]", *(f"{name} = {_toml(inner)}" for name, inner in value.items())]
            else:
                top.append(f"{key} = {_toml(value)}")
        return "\n".join([*top, *tables]) + "\n"


def differing_settings(recipes: Sequence[Recipe]) -> dict[str, tuple[Any, ...]]:
    """Return every setting in which recipes differ, with the value in each; None where one does not set it."""
    settings = [recipe.settings() for recipe in recipes]
    values = {key: tuple(one.get(key) for one in settings) for one in settings for key in one}
    return {key: of_each for key, of_each in values.items() if any(value != of_each[0] for value in of_each)}


def packaged_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that ship with the package."""
    files = resources.files("fedfeast.recipes").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_recipe(
    name_or_path: str,
    settings: Mapping[str, Any] | Sequence[str] = (),
    kept_facts: DatasetFacts | None = None,
    tell: bool = True,
) -> Recipe:
    """Load a shipped recipe by name or a TOML file by path, with settings like ``training.rounds=5`` on top.

    Facts that an existing run kept stand for missing data; ``tell`` says what former names are called now.
    """
    text = read_recipe(name_or_path)
    recipe = parse_recipe(text, name_or_path, settings, kept_facts, tell)
    if name_or_path in FITTED_RECIPES:
        given = dict(pairs_of(settings))
        fitted = fit_to_data(recipe.data, recipe.network, recipe.population, given.keys())
        return parse_recipe(text, name_or_path, {**fitted, **given}, kept_facts, tell=False)
    return recipe


def read_recipe(name_or_path: str) -> str:
    """Return the text of a shipped recipe by name or of a TOML file by path."""
    if name_or_path in packaged_recipes():
        return resources.files("fedfeast.recipes").joinpath(f"{name_or_path}.toml").read_text()
    if Path(name_or_path).is_file():
        return Path(name_or_path).read_text(errors="replace")
    if Path(name_or_path).is_dir():
        raise InvalidInput(
            f"{name_or_path} is a folder and no recipe: fedfeast train takes a folder of photos; for other commands "
            f"prepare it with fedfeast data prepare NAME --from {name_or_path} and set data.name=NAME in small-images."
        )
    raise InvalidInput(
        f"unknown recipe {name_or_path!r}{_suggest(name_or_path, packaged_recipes())}: give a TOML file's path "
        f"or one of {', '.join(packaged_recipes())}."
    )


def resolve_recipe(recipe: "str | Path | Recipe", settings: Mapping[str, Any] | Sequence[str] = ()) -> Recipe:
    """Return a recipe, given as it is or by name or path, with settings on top."""
    if isinstance(recipe, Recipe):
        return parse_recipe(recipe.to_toml(), recipe.name, settings) if settings else recipe
    return load_recipe(str(recipe), settings)


def parse_recipe(
    text: str,
    source: str,
    settings: Mapping[str, Any] | Sequence[str] = (),
    kept_facts: DatasetFacts | None = None,
    tell: bool = True,
) -> Recipe:
    """Parse and validate a recipe's TOML text; source names it in messages, kept facts stand for missing data.

    Code that the settings name is the caller's own; code that the text names must be trusted on this machine.
    """
    table = _read_toml(text, source)
    pairs = pairs_of(settings)
    for former in FORMER_SECTIONS.keys() & table.keys():
        now = FORMER_SECTIONS[former]
        if now in table:
            raise InvalidInput(f"recipe {source} has [{former}] and [{now}], two names of one section: keep [{now}].")
        _set(table, former, table.pop(former), tell)
    _forget_other_network(table, dict(pairs))
    _forget_idle_anchors(table, dict(pairs))
    for dotted, value in pairs:
        _set(table, dotted, value)
    try:
        for setting, code in _codes_of(table).items():
            _admit_code(code, setting, {dotted for dotted, _ in pairs}, source)
        method = table.get("method", {"name": "feast"})
        if isinstance(method, dict):
            table["method"] = _validate_method(method)
        return Recipe.model_validate(table, context=kept_facts)
    except ValidationError as error:
        raise InvalidInput(f"recipe {source}: {_explain(error)}") from error


def code_named_by(text: str, source: str) -> dict[str, str]:
    """Return the code that a recipe's text names, by setting; nothing of it is read or run."""
    return _codes_of(_read_toml(text, source))


def _codes_of(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the code that a recipe's tables name, by setting: nothing of the package has a colon in its name."""
    found = {}
    for setting in CODE_SETTINGS:
        section, key = setting.split(".")
        name = table[section].get(key) if isinstance(table.get(section), Mapping) else None
        if isinstance(name, str) and ":" in name:
            found[setting] = name
    return found


def _admit_code(name: str, setting: str, given: Set[str], source: str) -> None:
    """Trust code that the caller's settings name; refuse what the recipe's text names and nobody trusted."""
    if setting in given or setting.partition(".")[0] in given:
        trust(name, setting)
    else:
        require_trust(name, setting, f"recipe {source}")


def _read_toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"recipe {source} is no valid TOML: {error}.") from error
    except RecursionError as error:
        raise InvalidInput(f"recipe {source} is no valid TOML: it is nested too deeply.") from error


def _validate_method(table: dict[str, Any]) -> Section:
    name = str(table.get("name"))
    section = method_section(name)
    try:
        return section.model_validate(_with_preset(name, table))
    except ValidationError as error:
        raise InvalidInput(_explain(error, "method", section)) from error


def _with_preset(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return a method's table with the options of its preset, where it names one, below those it has itself."""
    # A recipe keeps the options, not the preset's name: what it means can then never change.
    preset = table.get("preset")
    if preset is None:
        return {key: value for key, value in table.items() if key != "preset"}
    presets = find_method(name).presets
    if preset not in presets:
        known = f"choose {' or '.join(map(repr, presets))}" if presets else f"{name} has none, so leave it out"
        raise InvalidInput(f"method.preset = {preset!r} is no preset of {name}: {known}.")
    return {**presets[preset], **{key: value for key, value in table.items() if key != "preset"}}


def pairs_of(settings: Mapping[str, Any] | Sequence[str]) -> list[tuple[str, Any]]:
    """Return settings, given by dotted name or as texts, as pairs of dotted name and value."""
    return list(settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings))


def parse_setting(setting: str) -> tuple[str, Any]:
    """Split ``a.b=c``; the value is read as TOML, and as plain text where it is none."""
    dotted, equals, text = setting.partition("=")
    if not equals or not dotted.strip():
        raise InvalidInput(f"--set {setting!r} is no setting: write it as section.key=value.")
    for written in (text, _LEADING_POINT.sub("0.", text)):  # TOML wants a digit before the point
        try:
            return dotted.strip(), tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return dotted.strip(), text.strip()


def _set(table: dict[str, Any], dotted: str, value: Any, tell: bool = True) -> None:
    first, *_ = names = dotted.split(".")
    if first in FORMER_SECTIONS:
        names[0] = FORMER_SECTIONS[first]
        if tell:
            logging.getLogger("fedfeast").warning(
                "[%s] is now called [%s]; the former name still works", first, names[0]
            )
    *sections, key = names
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise InvalidInput(f"setting {dotted!r}: {section} is a value, not a section.")
    # TOML has no null; none unsets an optional field. A later setting must not write into the caller's own section.
    table[key] = None if value == "none" else deepcopy(value)


def _forget_other_network(table: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Leave out what the text says of its network where the settings name another: choices, options and cache."""
    network, variants = table.get("network", {}), table.get("variants", {})
    if "network.builder" not in given or not isinstance(network, dict) or not isinstance(variants, dict):
        return
    named = given["network.builder"]
    if network.get("builder") != (None if named == "none" else named):
        # A choice of the same name would otherwise silently take the other network's values.
        table["network"] = {key: value for key, value in network.items() if key not in ("choices", "options")}
        table["variants"] = {key: value for key, value in variants.items() if key != "cache"}


def _forget_idle_anchors(table: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Leave out the text's own anchors where the settings choose the served round by something else."""
    evaluation = table.get("evaluation")
    if given.get("evaluation.selection", "anchors") != "anchors" and isinstance(evaluation, dict):
        table["evaluation"] = {key: value for key, value in evaluation.items() if key != "anchors"}


def _explain(error: ValidationError, prefix: str = "", model: type[Section] | None = None) -> str:
    """Say in one sentence what is wrong with the first offending field."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    dotted = ".".join(filter(None, [prefix, *path]))
    if first["type"] == "extra_forbidden":
        return f"unknown key {dotted!r}{_suggest_key(path, prefix, model or Recipe)}."
    if first["type"] == "missing":
        return f"{dotted} is missing: add it."
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    message = str(first["msg"])
    if path[-1:] == ["constrained-float"]:  # what pydantic calls the first of two types that a setting may have
        return f"{dotted.removesuffix('.constrained-float')} = {first['input']!r}: give a share below 1, or names."
    return f"{dotted} = {first['input']!r}: {message[0].lower()}{message[1:]}."


def _suggest_key(path: Sequence[str], prefix: str, model: type[Section]) -> str:
    """Suggest the nearest key in the same section, else the same key in another one."""
    for part in path[:-1]:
        inner = model.model_fields[part].annotation
        sections = [one for one in (inner, *get_args(inner)) if isinstance(one, type) and issubclass(one, Section)]
        model = sections[0] if sections else model
    nearest = get_close_matches(path[-1], model.model_fields, n=1)
    if nearest:
        return f" (did you mean {'.'.join(filter(None, [prefix, *path[:-1], nearest[0]]))!r}?)"
    elsewhere = [
        f"{section}.{path[-1]}"
        for section, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, Section)
        and path[-1] in field.annotation.model_fields
    ]
    if elsewhere:
        return f" (did you mean {elsewhere[0]!r}?)"
    return f": the keys here are {', '.join(model.model_fields)}"


def _suggest(word: str, words: Sequence[str] | Mapping[str, Any]) -> str:
    nearest = get_close_matches(word, list(words), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # JSON's escapes are TOML's too
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(inner)}' for key, inner in value.items())}}}"
    return repr(value)
