"""One of the candidates, why, at what cost, and when another would be the better choice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedfeast.data.tasks import Metric
from fedfeast.methods import find_method
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.choosing.sizing import count_rounds
from fedfeast.studies.paired_test import CERTAINTY
from fedfeast.studies.pairs import Pair
from fedfeast.units import PMACS_UNITS, format_bytes, suited_unit

ALIKE = 0.05  # relative: costs this close to each other decide nothing
MUCH_LESS = 0.5  # of the recommended candidate's cost: then a worse score may be worth it
WORTH = 0.1  # relative: a score that is worse by more is worth no saving

Beside = Callable[[str], Mapping[str, Pair]]  # a candidate's name -> all others beside it, by name


@dataclass(frozen=True, eq=False)
class Advice:
    """The recommended candidate, those that chance alone may set apart from the best, and what is said of it."""

    recommended: Standing
    best: Standing  # by its score
    tied: tuple[Standing, ...]  # with the best one, which is among them
    sentences: tuple[str, ...] = ()


def advise(standings: Sequence[Standing], metric: Metric, beside: Beside) -> Advice:
    """Recommend a candidate: the best score, among ties the best worst-served tenth, then traffic, then compute."""
    best = max(standings, key=lambda one: one.merit)
    others = beside(best.name)
    # Where nothing can be judged, as of one seed without examples to pair over, the best score is all there is.
    tied = [one for one in standings if one is best or others[one.name].verdict == "tie"]
    fairest = max(tied, key=lambda one: one.worst_merit)
    fair = [one for one in tied if not fairest.is_clearly_fairer(one)]
    light = _cheapest(fair, lambda one: one.traffic_bytes)
    left = _cheapest(light, lambda one: one.pmacs)
    chosen = max(left, key=lambda one: one.merit)
    advice = Advice(chosen, best, tuple(tied))
    reason = _reason([len(stage) for stage in (tied, fair, light, left)])
    said = (_pick(advice, standings, reason, metric, others), _cost(chosen, metric))
    return replace(advice, sentences=(*said, *_alternatives(standings, chosen, metric, beside(chosen.name))))


def _cheapest(standings: Sequence[Standing], cost: Callable[[Standing], float]) -> list[Standing]:
    """Return those whose cost is hardly more than the least."""
    least = min(map(cost, standings))
    return [one for one in standings if cost(one) <= (1 + ALIKE) * least]


def _reason(left: Sequence[int]) -> str:
    """Say what decided among ties, given how many candidates were left after each rule."""
    tied, fair, light, last = left
    if last < light:
        return "it sends hardly more than any of them and computes least"
    if light < fair:
        return "it sends least"
    if fair < tied:
        return "its worst-served tenth of clients is clearly better off"
    return "they cost alike, and its score is the best"


def _pick(
    advice: Advice, standings: Sequence[Standing], reason: str, metric: Metric, beside_best: Mapping[str, Pair]
) -> str:
    """Say which one to take, and by which rule."""
    chosen, best = advice.recommended, advice.best
    head, score = f"Take {chosen.label} (method.name={chosen.name})", metric.show(chosen.score)
    ties = sorted((one for one in advice.tied if one is not chosen), key=_by_merit)
    if not ties:
        return f"{head}: its population score, {score}, is {_lead(best, standings, metric, beside_best)}."
    named = ", ".join(f"{one.label} {metric.show(one.score)}" for one in ties)
    behind = ""
    if chosen is not best:
        pair = beside_best[chosen.name]
        behind = f" {best.label} is ahead by {_points(pair, metric)}, which may be chance ({_p(pair)})."
    return f"{head}: of those that score alike within chance ({chosen.label} {score}; {named}) {reason}.{behind}"


def _lead(best: Standing, standings: Sequence[Standing], metric: Metric, beside_best: Mapping[str, Pair]) -> str:
    """Say how far the next one is behind the only one that leads."""
    others = sorted((one for one in standings if one is not best), key=_by_merit)
    if not others:
        return "that of the only candidate"
    pair = beside_best[others[0].name]
    if pair.p is None:
        return f"the best by {_points(pair, metric)}; whether that is chance one seed cannot tell here"
    behind = f"{others[0].label}, the next, is behind by {_points(pair, metric)}"
    if pair.p >= 1 - CERTAINTY:  # corrected for many comparisons, where the margin that decided is not
        return f"the best beyond its margin ({behind}; among so many comparisons that may still be luck, {_p(pair)})"
    return f"clearly the best ({behind}, {_p(pair)})"


def _cost(chosen: Standing, metric: Metric) -> str:
    served = "" if chosen.served == 1 else f" {1 - chosen.served:.0%} of the clients afford none of its networks."
    suits = find_method(chosen.name).suits
    return (
        f"It took {count_rounds(chosen.rounds)}, {format_bytes(chosen.traffic_bytes)} of traffic and "
        f"{format_compute(chosen.pmacs)}; its worst-served tenth of clients has {metric.show(chosen.worst_score)}."
        f"{served}{suits and f' What it is for: {suits}'}"
    )


def _alternatives(
    standings: Sequence[Standing], chosen: Standing, metric: Metric, beside: Mapping[str, Pair]
) -> list[str]:
    """Say when another candidate is the better choice: for every way to be better, the one that scores best."""
    near = [one for one in standings if one.merit >= chosen.merit - WORTH * abs(chosen.merit)]
    others = sorted((one for one in near if one is not chosen), key=_by_merit)
    fairer = [one for one in others if one.is_clearly_fairer(chosen)]
    ways: list[tuple[list[Standing], Callable[[Standing], str]]] = [
        (
            sorted(fairer, key=lambda one: -one.worst_merit),
            lambda one: f"the worst-served clients count most ({metric.show(one.worst_score)})",
        ),
        (
            [one for one in others if one.traffic_bytes <= MUCH_LESS * chosen.traffic_bytes],
            lambda one: f"bytes are dear ({format_bytes(one.traffic_bytes)})",
        ),
        (
            [one for one in others if one.pmacs <= MUCH_LESS * chosen.pmacs],
            lambda one: f"computing is dear ({format_compute(one.pmacs)})",
        ),
        (
            [one for one in others if one.served > chosen.served],
            lambda one: f"nobody may be left without a network ({one.served:.0%} are served)",
        ),
    ]
    said: dict[Standing, list[str]] = {}  # who is better in several ways is named once
    for better, words in ways:
        for one in better[:1]:
            said.setdefault(one, []).append(words(one))
    return [
        f"{one.label} is the better choice where {' or '.join(words)}: its score is {metric.show(one.score)}, "
        f"{_beside(beside[one.name], metric)}."
        for one, words in said.items()
    ]


def _beside(pair: Pair, metric: Metric) -> str:
    if pair.verdict == "tie":
        return "alike within chance"
    return f"{'worse' if pair.difference.mean < 0 else 'better'} by {_points(pair, metric)}"


def _points(pair: Pair, metric: Metric) -> str:
    """Return how far two are apart, for people: shares in points of percentage."""
    size = abs(pair.difference.mean)
    return f"{size:.2f} points" if metric.is_share else f"{size:.3g}"


def _p(pair: Pair) -> str:
    return "p < 0.001" if pair.p is not None and pair.p < 0.001 else f"p = {pair.p:.2g}"


def format_compute(pmacs: float) -> str:
    """Return training compute for people, e.g. 31 PMACs or 2.15 TMACs."""
    unit, scale = suited_unit([pmacs], PMACS_UNITS)
    return f"{pmacs / scale:.3g} {unit}"


def _by_merit(standing: Standing) -> float:
    return -standing.merit
