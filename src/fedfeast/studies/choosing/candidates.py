"""The methods that suit a recipe's network, task and population, and why others do not."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfeast.errors import InvalidInput
from fedfeast.methods import METHODS
from fedfeast.planning.outline import outline
from fedfeast.recipes import Recipe
from fedfeast.recipes.recipe import resolve_recipe
from fedfeast.studies.arms import LABELS, Arm, method_arm


@dataclass(frozen=True)
class Candidate:
    """A method under the recipe."""

    arm: Arm
    recipe: Recipe


@dataclass(frozen=True)
class LeftOut:
    """A method that does not suit, and the sentence that says so."""

    name: str
    sentence: str

    def __str__(self) -> str:
        """Say why in a line; what could be changed about it stands behind the sentence's colon."""
        reason = self.sentence.partition(": ")[0].removesuffix(".").removeprefix(f"method.name = {self.name!r} ")
        return f"{LABELS.get(self.name, self.name)}: {reason}"


def find_candidates(recipe: Recipe, wanted: Sequence[str] = ()) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the methods that the recipe's clients can train, of those wanted if any are named, and the others.

    The recipe's own method keeps its options, also where it is none of the package's; all others have their defaults.
    """
    names = list(dict.fromkeys([*METHODS, recipe.method_name]))
    for name in wanted:
        if name not in names:
            raise InvalidInput(f"--arm {name!r} is no method: choose from {', '.join(names)}.")
    candidates, left_out = list[Candidate](), list[LeftOut]()
    for name in [one for one in names if one in wanted or not wanted]:
        try:
            candidates.append(Candidate(method_arm(name), _suited(recipe, name)))
        except InvalidInput as refusal:
            left_out.append(LeftOut(name, str(refusal).removeprefix(f"recipe {recipe.name}: ")))
    if not candidates:
        own = next((one for one in left_out if one.name == recipe.method_name), left_out[0])
        raise InvalidInput(f"no method suits recipe {recipe.name}, {own.name} for this reason: {own.sentence}")
    return candidates, left_out


def _suited(recipe: Recipe, name: str) -> Recipe:
    """Return the recipe with a method; refuse one that its clients cannot train within their budgets."""
    chosen = recipe if recipe.method_name == name else resolve_recipe(recipe, {"method": {"name": name}})
    built = outline(chosen)
    if not built.method.keeps_budgets:
        raise InvalidInput("its options make clients train or serve what they cannot afford: leave these options out.")
    built.groups  # noqa: B018 - plans a round for every kind of client, which a method may refuse
    return chosen
