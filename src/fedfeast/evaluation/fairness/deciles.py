"""The fairness table: what clients did and what they get, by tenths of their budgets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfeast.data.tasks import Metric
from fedfeast.evaluation.curve import Curve
from fedfeast.evaluation.fairness.participation import Participation
from fedfeast.frames import frame_of

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_GROUPS = 10
TAKING_PART_FACTS = (
    "asked",
    "answered",
    "refused",
    "late",
    "failed",
    "answer_share",
    "never_answered",
    "answer_seconds",
)


@dataclass(frozen=True)
class Decile:
    """A tenth of the clients; None where a fact is not known."""

    decile: int  # from 1, the smallest budgets
    clients: int
    training: int  # of them, those that may train
    least_macs: float
    greatest_macs: float
    examples: int
    asked: int | None  # times, over all rounds
    answered: int | None  # times that an answer was taken in
    refused: int | None
    late: int | None  # a simulated client is never late
    failed: int | None  # out of reach, or an error in an answer's place
    answer_share: float | None  # of all clients' answers
    never_answered: int | None  # clients of which no answer was ever taken in
    answer_seconds: float | None  # median from question to answer, of a fleet
    served: int | None  # clients that any network fits
    value: float | None  # mean over these
    score: float | None  # mean over all, as in the population score
    score_best: float | None  # where each has the best network it affords
    own_value: float | None  # mean over clients on test examples of their own


@dataclass(frozen=True)
class Fairness:
    """All tenths, least budgets first; of fewer than ten clients each is by itself."""

    deciles: tuple[Decile, ...]
    metric: Metric

    @property
    def worst(self) -> Decile | None:
        """The tenth with the worst score; None before scores are measured."""
        scored = [(self.metric.merit(one.score), one) for one in self.deciles if one.score is not None]
        return min(scored, key=lambda pair: pair[0])[1] if scored else None

    @property
    def gap(self) -> float | None:
        """By how much the worst score lies behind the best one."""
        merits = [self.metric.merit(one.score) for one in self.deciles if one.score is not None]
        return max(merits) - min(merits) if merits else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each tenth, for a file."""
        return [asdict(one) for one in self.deciles]

    def facts(self) -> dict[str, Any]:
        """Return all of it for a file."""
        worst = self.worst
        return {"deciles": self.rows(), "worst_decile": None if worst is None else worst.decile, "score_gap": self.gap}

    def to_frame(self) -> "DataFrame":
        """Return the rows as a pandas DataFrame by decile."""
        return frame_of(self.rows(), "decile", without="fairness.rows()")


def measure_fairness(
    clients: Sequence[Mapping[str, str]],
    taking_part: Participation | None,
    metric: Metric,
    curve: Curve | None = None,
    own_values: Mapping[str, Sequence[float]] | None = None,
) -> Fairness:
    """Return the table of a run's clients, the rows of its clients.csv.

    Without a curve no scores are known; who took part is left out where it must stay unknown. ``own_values`` are those
    of every point of the curve on a client's own test examples, by the client's name.
    """
    budgets = np.array([float(row["budget_macs"]) for row in clients])
    own = _own(clients, budgets, curve, own_values or {})
    return Fairness(
        tuple(
            Decile(
                decile=number,
                clients=len(group),
                least_macs=float(budgets[group].min()),
                greatest_macs=float(budgets[group].max()),
                training=sum(clients[index].get("participates", "1") != "0" for index in group),
                examples=sum(int(float(clients[index]["num_examples"])) for index in group),
                **_took_part({int(index): clients[index]["name"] for index in group}, taking_part),
                **_gets(curve, budgets[group]),
                own_value=_mean(own[group]),
            )
            for number, group in enumerate(tenths(budgets), start=1)
        ),
        metric,
    )


def tenths(budgets: np.ndarray) -> list[np.ndarray]:
    """Return the places of each tenth's clients, least budgets first; of fewer than ten clients each by itself."""
    # By rank, so that tenths are alike in size; equal budgets in the order of the table.
    return np.array_split(np.argsort(budgets, kind="stable"), min(MOST_GROUPS, len(budgets))) if len(budgets) else []


def _took_part(names_of: Mapping[int, str], taking_part: Participation | None) -> dict[str, Any]:
    """Return what a group's clients did, whose names are given by index."""
    if taking_part is None:
        return dict.fromkeys(TAKING_PART_FACTS)
    group, names, all_answers = list(names_of), list(names_of.values()), taking_part.answered.total()
    answered = [taking_part.answered[index] for index in group]
    seconds = [one for name in names for one in taking_part.seconds.get(name, ()) if math.isfinite(one)]
    awaited = taking_part.awaits_answers
    return {
        "asked": sum(taking_part.asked[index] for index in group),
        "answered": sum(answered),
        "refused": sum(taking_part.refused[name] for name in names),
        "late": sum(taking_part.late[name] for name in names) if awaited else None,
        "failed": sum(taking_part.failed[name] for name in names) if awaited else None,
        "answer_share": sum(answered) / all_answers if all_answers else None,
        "never_answered": answered.count(0),
        "answer_seconds": round(median(seconds), 4) if seconds else None,
    }


def _gets(curve: Curve | None, budgets: np.ndarray) -> dict[str, Any]:
    """Return what a group's clients get."""
    if curve is None:
        return dict.fromkeys(("served", "value", "score", "score_best"))
    values, served = curve.client_values(budgets), curve.count_affordable(budgets) > 0
    means = {"value": values[served], "score": values, "score_best": curve.client_values(budgets, "best")}
    return {"served": int(served.sum()), **{name: _mean(of) for name, of in means.items()}}


def _own(
    clients: Sequence[Mapping[str, str]],
    budgets: np.ndarray,
    curve: Curve | None,
    own_values: Mapping[str, Sequence[float]],
) -> np.ndarray:
    """Return what each client's network comes to on its own test examples; not a number where it has none."""
    found = np.full(len(clients), np.nan)
    if curve is None or not own_values:
        return found
    for place, (row, affordable) in enumerate(zip(clients, curve.count_affordable(budgets), strict=True)):
        values = own_values.get(row["name"], ())
        if affordable and len(values) == len(curve.points):
            found[place] = values[affordable - 1]
    return found


def _mean(values: np.ndarray) -> float | None:
    """Return the mean of those that are known; None where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
