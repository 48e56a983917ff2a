"""Try a method by every rule, and say which it violates."""

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.federation import Method
from fedfeast.methods import METHODS
from fedfeast.own_code import find_own, offer, trust
from fedfeast.recipes import Recipe
from fedfeast.recipes.recipe import pairs_of, resolve_recipe
from fedfeast.runs.contract import plan_rules, round_rules, vector_rules
from fedfeast.runs.contract.trial import Trial

HERE = {"engine.device": "cpu", "engine.name": "eager"}  # where a round gives the same bits twice
# Of lines of errors: the package's, torch's and its neighbours', Python's.
NOT_THEIRS = (Path(fedfeast.__file__).parent, Path(torch.__file__).parents[1], Path(inspect.__file__).parent)


@dataclass(frozen=True)
class Rule:
    """What every method must keep, and what finds out: it yields a sentence for every violation."""

    name: str
    sentence: str
    violations: Callable[[Trial], Iterator[str]]


# Beside which no other rule can be tried.
IMPORTED = Rule("imported", "A method's file can be imported.", lambda trial: iter(()))
BUILT = Rule("built", "A method is built from a recipe's networks.", lambda trial: iter(()))
RULES = {
    rule.name: rule
    for rule in (
        Rule("frozen", "A method is a frozen record of hyper-parameters.", plan_rules.is_frozen),
        Rule("budgets", "No client trains a network above its budget.", plan_rules.keeps_to_budgets),
        Rule("one each", "Every client asked has one assignment.", plan_rules.assigns_everybody_once),
        Rule("constants", "Constants have equal shapes for all.", plan_rules.gives_constants_of_equal_shapes),
        Rule(
            "same budget",
            "Equal budgets get other networks only where said.",
            plan_rules.gives_the_same_for_the_same_budget,
        ),
        Rule("blind plans", "Plans look at weights only where that is said.", plan_rules.looks_at_weights_where_said),
        Rule("mean passes", "Expected passes are their mean.", plan_rules.expects_the_mean_of_its_passes),
        Rule("participants", "Who affords nothing does not train.", plan_rules.leaves_out_who_affords_nothing),
        Rule("sent", "What is trained was sent.", plan_rules.sends_what_is_trained),
        Rule("listed", "The largest trained networks are listed.", plan_rules.lists_what_needs_most_room),
        Rule("rounds alike", "Rounds that stand for others are all of them.", plan_rules.stands_for_all_rounds),
        Rule("cost", "The declared cost is the deployed network's.", plan_rules.declares_its_cost),
        Rule("memory", "The memory survives a checkpoint.", plan_rules.remembers_by_named_tensors),
        Rule("untouched", "Rounds alone change the global vector.", vector_rules.leaves_the_vector_alone),
        Rule("deployed", "What is served is what was trained.", vector_rules.serves_what_was_trained),
        Rule("seed", "The same seed gives the same weights.", round_rules.repeats_itself),
        Rule("not sent", "Positions not sent stay as they are.", round_rules.leaves_alone_what_was_not_sent),
        Rule("server step", "Servers move only what was answered.", round_rules.steps_only_where_answered),
        Rule("single answer", "A single answer is taken as it is.", round_rules.takes_a_single_answer_as_it_is),
        Rule("losses", "Losses look at no values.", round_rules.computes_losses_from_tensors),
        Rule("same loss", "Losses are alike in all rounds.", round_rules.computes_the_same_loss_in_every_round),
        Rule("captured", "Captured rounds equal plain ones.", round_rules.is_the_same_when_captured),
    )
}


@dataclass(frozen=True)
class MethodReport:
    """Which rules a method keeps, and the first violation of each of the others."""

    method: str
    kept: tuple[str, ...]  # names of rules
    violated: Mapping[str, str]  # a sentence by the name of the rule

    @property
    def passed(self) -> bool:
        """Whether nothing is violated."""
        return not self.violated

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        told = [one for one in (IMPORTED, BUILT, *RULES.values()) if one.name in (*self.kept, *self.violated)]
        rules = [{"rule": one.name, "says": one.sentence, "violation": self.violated.get(one.name)} for one in told]
        return {"method": self.method, "passed": self.passed, "rules": rules}


def check_method(
    method: str | type[Method],
    recipe: str | Path | Recipe = "digits",
    settings: Mapping[str, Any] | Sequence[str] = (),
    on_rule: Callable[[Rule], None] = lambda rule: None,
) -> MethodReport:
    """Try a method by every rule in a recipe's federation; it is a class, ``file.py:Class`` or a name of the package.

    Naming code here is trusting it: it runs. Nothing is written.
    """
    named = _name_of(method)
    pairs = dict(pairs_of(settings))
    if pairs.keys() & {"method", "method.name"}:
        raise InvalidInput(f"method.name is set, and the method to check is {named}: leave the setting out.")
    try:
        if ":" in named:
            find_own(named, "check-method")
    except (InvalidInput, OSError):
        raise  # of a module that is not there
    except Exception as error:  # whatever a file of somebody's own raises
        return MethodReport(named, (), {IMPORTED.name: _told(error)})
    try:
        trial = Trial(resolve_recipe(recipe, {**pairs, **HERE, "method.name": named}))
        _ = trial.federation
    except (InvalidInput, OSError):
        raise  # of the recipe, its data or the method's options
    except Exception as error:  # whatever a file of somebody's own raises
        return MethodReport(named, (), {BUILT.name: _told(error)})
    violated = dict[str, str]()
    for rule in RULES.values():
        on_rule(rule)
        violation = first_violation(rule, trial)
        if violation is not None:
            violated[rule.name] = violation
    return MethodReport(named, tuple(name for name in RULES if name not in violated), violated)


def first_violation(rule: Rule, trial: Trial) -> str | None:
    """Return what violates a rule first; code that ends in an error violates it too."""
    try:
        return next(rule.violations(trial), None)
    except Exception as error:  # whatever a method of somebody's own raises
        return _told(error)


def _told(error: Exception) -> str:
    """Return an error of a method's code as one sentence that names the place."""
    if isinstance(error, SyntaxError):  # which is raised where the file is read
        return f"{Path(str(error.filename)).name}, line {error.lineno}: {type(error).__name__}: {error.msg}."
    frames = traceback.extract_tb(error.__traceback__)
    raised = next((one for one in reversed(frames) if _is_theirs(one.filename)), frames[-1])
    what = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{Path(raised.filename).name}, line {raised.lineno}, in {raised.name}: {type(error).__name__}: {what}."


def _is_theirs(file: str) -> bool:
    """Return whether a line of an error stands in a file of the user's own."""
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in NOT_THEIRS)


def _name_of(method: str | type[Method]) -> str:
    """Return by which name a recipe finds the method, which may run from now on."""
    if isinstance(method, str):
        if ":" in method:
            trust(method, "check-method")
        elif method not in METHODS:
            raise InvalidInput(
                f"check-method {method!r} names no method: write file.py:Class or module:Class, or one of "
                f"{', '.join(METHODS)}."
            )
        return method
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InvalidInput(f"check_method was given {method!r}, which is no class derived from Method.")
    return offer(method, inspect.getfile(method), method.__name__, "check_method")
