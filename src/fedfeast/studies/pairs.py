"""Arms beside one of them, paired over seeds and what they were tested on: which differences are larger than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedfeast.data.tasks import ACCURACY
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import count_client_wins
from fedfeast.recipes import Recipe
from fedfeast.recipes.recipe import differing_settings
from fedfeast.studies.arms import Arm
from fedfeast.studies.paired_test import CERTAINTY, PairedDifference, holm, paired_difference
from fedfeast.studies.protocol import is_of
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.tables import Cell, Column, Estimate, Row, Table

Verdict = Literal["better", "worse", "tie", "not judged"]
UNJUDGED: Verdict = "not judged"
EXAMPLES, CLIENTS, NOTHING = "test examples", "test clients", ""
WITHOUT_EXAMPLES = "fedfeast evaluate keeps a run's test examples, which earlier versions did not"
# Arms are compared where they share these; the rest of a population is whom they serve.
SHARED, FREE_OF_SHARED = ("data", "population", "partition"), ("population.below_smallest", "population.pooled")


@dataclass(frozen=True)
class Pair:
    """One arm beside another: by how much the one serves the population better, greater for what is better."""

    arm: Arm
    reference: Arm
    difference: PairedDifference
    paired_over: str  # beside seeds: test examples, test clients, or nothing
    p: float | None  # corrected for the number of comparisons
    clients_better: float  # of all clients, by what they are served; a mean over seeds
    clients_worse: float

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is larger than chance explains, and to whose good."""
        if self.p is None:
            return UNJUDGED
        if self.p >= 1 - CERTAINTY:
            return "tie"
        return "better" if self.difference.mean > 0 else "worse"

    def facts(self) -> dict[str, Any]:
        """Return the pair as plain values."""
        return {
            "arm": self.arm.name,
            "reference": self.reference.name,
            "difference": self.difference.mean,
            "standard_error": self.difference.error,
            "margin": self.difference.margin,
            "p": self.p,
            "verdict": self.verdict,
            "paired_over": self.paired_over,
            "units": self.difference.units,
            "seeds": self.difference.seeds,
            "clients_better": self.clients_better,
            "clients_worse": self.clients_worse,
        }


@dataclass(frozen=True, eq=False)
class Tested:
    """What the population comes to by a run's networks, unit by unit of its test set."""

    kind: str
    units: tuple[str, ...]  # names of test clients; examples have none
    merits: NDArray[np.float64]  # (units,), as people read them, greater for what is better

    def is_like(self, other: "Tested") -> bool:
        """Return whether both are of the same units."""
        return (self.kind, self.units, len(self.merits)) == (other.kind, other.units, len(other.merits))


def compare_arms(results: Results, reference: str | None = None) -> tuple[Pair, ...]:
    """Compare arms on the same clients and data with the one named, or with FEAST, or with the first of them."""
    if reference is not None and reference not in results.arms:
        raise InvalidInput(f"no arm {reference!r} to compare with: choose from {', '.join(results.arms)}.")
    pairs = []
    for group in _groups(results):
        against = _reference(group, reference)
        if against is None:
            continue
        pairs += [(arm, against, *_difference(results, arm, against)) for arm in group if arm != against]
    judged = [difference.p for _, _, difference, _ in pairs if difference.p is not None]
    corrected = iter(holm(judged))
    return tuple(
        Pair(
            arm,
            against,
            difference,
            kind,
            None if difference.p is None else next(corrected),
            *_count_clients(results, arm, against),
        )
        for arm, against, difference, kind in pairs
    )


def pairs_table(pairs: Sequence[Pair], results: Results) -> Table:
    """Return the comparisons as a table, the verdicts last."""
    digits = 2 if results.metric.is_share else 3
    references = list(dict.fromkeys(pair.reference.label for pair in pairs))
    several = len(references) > 1
    columns = (
        Column(f"less {references[0]}" if not several else "difference", digits),
        Column("margin", digits),
        Column("p", 3),
        Column("clients better", 0),
        Column("clients worse", 0),
        Column("verdict"),
    )
    rows = tuple(
        Row(
            f"{pair.arm.label} less {pair.reference.label}" if several else pair.arm.label,
            (
                Cell(Estimate(pair.difference.mean)),
                _cell(pair.difference.margin),
                _cell_of_p(pair.p),
                Cell(Estimate(pair.clients_better)),
                Cell(Estimate(pair.clients_worse)),
                Cell(words=pair.verdict),
            ),
        )
        for pair in pairs
    )
    unit = f"points of {results.measured_in}" if results.metric.is_share else f"gain in {results.measured_in}"
    return Table("pairs", "Which differences are larger than chance", "arm", columns, rows, unit, _note(pairs))


def describe_pairs(pairs: Sequence[Pair]) -> list[str]:
    """Say in words which arms differ from their reference by more than chance, and which are ties."""
    told = []
    for against in dict.fromkeys(pair.reference.label for pair in pairs):
        openings = {
            "better": f"Better than {against} by more than chance",
            "worse": f"Worse than {against} by more than chance",
            "tie": f"Ties with {against}",
            UNJUDGED: f"Not judged beside {against}, with one seed and nothing to pair over ({WITHOUT_EXAMPLES})",
        }
        beside = [pair for pair in pairs if pair.reference.label == against]
        for verdict, opening in openings.items():
            labels = [pair.arm.label for pair in beside if pair.verdict == verdict]
            told += [f"{opening}: {'; '.join(labels)}."] if labels else []
    return told


def _note(pairs: Sequence[Pair]) -> str:
    seeds, kinds = pairs[0].difference.seeds, {pair.paired_over: pair.difference.units for pair in pairs}
    over = [f"{seeds} seeds"] if seeds > 1 else []
    over += [f"{units:,} {kind}" for kind, units in kinds.items() if kind]
    served = "" if CLIENTS in kinds else ", each client with the largest point it affords"
    judged = sum(pair.p is not None for pair in pairs)
    return (
        f"What is gained on average{served}, paired over {' and '.join(over) or 'nothing'}. The truth lies within the "
        f"margin with {CERTAINTY:.0%} certainty; p is corrected for {judged} comparisons (Holm), and from "
        f"{1 - CERTAINTY:.2g} on a difference is a tie. Of the clients, those that are served better and worse are "
        "counted."
    )


def _cell(value: float | None, words: str = "") -> Cell:
    return Cell() if value is None else Cell(Estimate(value), words=words)


def _cell_of_p(p: float | None) -> Cell:
    return _cell(p, "< 0.001" if p is not None and p < 0.001 else "")


def _groups(results: Results) -> list[list[Arm]]:
    """Return the arms that share clients and data, group by group; an arm by itself has nothing to compare with."""
    groups = list[tuple[Recipe, list[Arm]]]()
    for name, arm in results.arms.items():
        recipe = results.of(name)[0].recipe
        for first, members in groups:
            keys = differing_settings([first, recipe])
            if not any(is_of(key, SHARED) and not is_of(key, FREE_OF_SHARED) for key in keys):
                members.append(arm)
                break
        else:
            groups.append((recipe, [arm]))
    return [members for _, members in groups if len(members) > 1]


def _reference(group: Sequence[Arm], named: str | None) -> Arm | None:
    """Return the arm that the others of a group stand beside; None where another group has the one named."""
    if named is not None:
        return next((arm for arm in group if arm.name == named), None)
    return next((arm for arm in group if arm.settings.get("method.name") == "feast"), group[0])


def _difference(results: Results, arm: Arm, against: Arm) -> tuple[PairedDifference, str]:
    """Return the difference of two arms, and over what it is paired beside seeds."""
    both = list(zip(results.of(arm.name), results.of(against.name), strict=True))
    tested = [_tested(one, other) for one, other in both]
    units = [pair for pair in tested if pair is not None]
    if len(units) < len(both):
        leads = [np.array([_score(one, other) - _score(other, other)]) for one, other in both]
        return paired_difference(leads), NOTHING
    same = all(pair[0].is_like(units[0][0]) for pair in units)
    differences = [one.merits - other.merits for one, other in units]
    return paired_difference(differences, same), units[0][0].kind


def _score(outcome: Outcome, whose: Outcome) -> float:
    """Return what an arm's networks come to for the clients of another, greater for what is better."""
    metric = outcome.curve.metric
    return metric.shown(metric.merit(outcome.curve.population_score(whose.budgets_macs)))


def _tested(one: Outcome, other: Outcome) -> tuple[Tested, Tested] | None:
    """Return what both come to, unit by unit, for the second one's clients; None where units are not the same."""
    ours, theirs = (_tested_units(outcome, other) for outcome in (one, other))
    return (ours, theirs) if ours is not None and theirs is not None and ours.is_like(theirs) else None


def _tested_units(outcome: Outcome, whose: Outcome) -> Tested | None:
    if outcome.run is None or whose.run is None:
        return None
    folder, curve = outcome.run.folder, outcome.curve
    if "test_sets" in outcome.run.summary:
        main = next(iter(folder.client_values().values()))  # the curve is of the first test set
        table, names, kind = np.array(list(main.values())).T, tuple(main), CLIENTS
    else:
        right = folder.kept_examples.load() if curve.metric.name == ACCURACY.name else None
        if right is None:
            return None
        table, names, kind = right.astype(np.float64), (), EXAMPLES
    if len(table) != len(curve.points):
        raise InvalidInput(f"{folder.path} has tests of other networks than its curve: run fedfeast evaluate on it.")
    table = np.vstack([np.full(table.shape[1], curve.unserved), table])  # the first row is for who affords nothing
    budgets = {row["name"]: float(row["budget_macs"]) for row in whose.run.folder.clients()}
    if names and all(name in budgets for name in names):  # each is served by its own budget
        places = curve.count_affordable(np.array([budgets[name] for name in names]))
        values = table[places, np.arange(len(names))]
    else:  # the test stands for all clients; counts before shares, so that sums are exact
        counts = np.bincount(curve.count_affordable(whose.budgets_macs), minlength=len(table))
        values = counts @ table / len(whose.budgets_macs)
    sign = curve.metric.shown(curve.metric.merit(1.0))
    return Tested(kind, names, np.asarray(sign * values))


def _count_clients(results: Results, arm: Arm, against: Arm) -> tuple[float, float]:
    """Return how many clients an arm serves better and how many worse than another, as a mean over seeds."""
    counted = [
        count_client_wins(one.curve, other.curve, other.budgets_macs)
        for one, other in zip(results.of(arm.name), results.of(against.name), strict=True)
    ]
    return float(np.mean([one.wins for one in counted])), float(np.mean([one.losses for one in counted]))
