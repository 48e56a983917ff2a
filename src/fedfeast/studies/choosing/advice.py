"""One of the candidates, why, at what cost, and when another would be the better choice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedfeast.data.tasks import Metric
from fedfeast.methods import find_method
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.choosing.sizing import count_rounds
from fedfeast.units import format_bytes

ALIKE = 0.05  # relative: costs this close to each other decide nothing
MUCH_LESS = 0.5  # of the recommended candidate's cost: then a worse score may be worth it
WORTH = 0.1  # relative: a score that is worse by more is worth no saving


@dataclass(frozen=True, eq=False)
class Advice:
    """The recommended candidate, those that chance alone may set apart from the best, and what is said of it."""

    recommended: Standing
    best: Standing  # by its score
    tied: tuple[Standing, ...]  # with the best one, which is among them
    sentences: tuple[str, ...] = ()


def advise(standings: Sequence[Standing], metric: Metric) -> Advice:
    """Recommend a candidate: the best score, among ties the best worst-served tenth, then traffic, then compute."""
    best = max(standings, key=lambda one: one.merit)
    tied = tuple(one for one in standings if one is best or not best.score_over(one).is_clear)
    fairest = max(tied, key=lambda one: metric.merit(one.worst_score))
    fair = [one for one in tied if one is fairest or not fairest.worst_over(one).is_clear]
    light = _cheapest(fair, lambda one: one.traffic_bytes)
    left = _cheapest(light, lambda one: one.pmacs)
    chosen = max(left, key=lambda one: one.merit)
    reason = _reason(chosen, best, [len(stage) for stage in (tied, fair, light, left)])
    advice = Advice(chosen, best, tied)
    said = (_pick(advice, standings, reason, metric), _cost(chosen, metric), *_others(standings, chosen, metric))
    return replace(advice, sentences=said)


def _cheapest(standings: Sequence[Standing], cost: Callable[[Standing], float]) -> list[Standing]:
    """Return those whose cost is hardly more than the least."""
    least = min(map(cost, standings))
    return [one for one in standings if cost(one) <= (1 + ALIKE) * least]


def _reason(chosen: Standing, best: Standing, left: Sequence[int]) -> str:
    """Say what decided, given how many candidates were left after each rule."""
    tied, fair, light, last = left
    if last < light:
        return "it sends hardly more than any of them and computes least"
    if light < fair:
        return "it sends least"
    if fair < tied:
        return "its worst-served tenth of clients is clearly better off"
    return "they also cost alike, and its score is the best" if chosen is best else "it costs as much as they do"


def _pick(advice: Advice, standings: Sequence[Standing], reason: str, metric: Metric) -> str:
    """Say which one to take, and by which rule."""
    chosen, best, tied = advice.recommended, advice.best, advice.tied
    head = f"Take {chosen.label} (method.name={chosen.name})"
    score = metric.show(chosen.score)
    others = [one for one in tied if one is not chosen]
    if not others:
        return f"{head}: its population score, {score}, is {_next_best(chosen, standings, metric)}."
    named = ", ".join(f"{one.label} {metric.show(one.score)}" for one in sorted(others, key=_by_merit))
    lead = ""
    if chosen is not best:
        difference = best.score_over(chosen)
        lead = (
            f" {best.label} is ahead by {_points(difference.lead, metric)}, where chance alone makes up to "
            f"{_points(difference.reach, metric)}."
        )
    return f"{head}: of those that score alike within chance ({chosen.label} {score}; {named}) {reason}.{lead}"


def _next_best(chosen: Standing, standings: Sequence[Standing], metric: Metric) -> str:
    """Say how far the others are behind the only one that leads."""
    others = sorted((one for one in standings if one is not chosen), key=_by_merit)
    if not others:
        return "that of the only candidate"
    difference = chosen.score_over(others[0])
    return (
        f"clearly the best ({others[0].label}, the next, has {_points(difference.lead, metric)} less, where chance "
        f"alone makes up to {_points(difference.reach, metric)})"
    )


def _cost(chosen: Standing, metric: Metric) -> str:
    served = "" if chosen.served == 1 else f" {1 - chosen.served:.0%} of the clients afford none of its networks."
    suits = find_method(chosen.name).suits
    return (
        f"It took {count_rounds(chosen.rounds)}, {format_bytes(chosen.traffic_bytes)} of traffic and "
        f"{format_compute(chosen.pmacs)}; its worst-served tenth of clients has {metric.show(chosen.worst_score)}."
        f"{served}{suits and f' What it is for: {suits}'}"
    )


def _others(standings: Sequence[Standing], chosen: Standing, metric: Metric) -> list[str]:
    """Say when another candidate is the better choice: for every way to be better, the one that scores best."""
    near = [one for one in standings if one.merit >= chosen.merit - WORTH * abs(chosen.merit)]
    others = sorted((one for one in near if one is not chosen), key=_by_merit)
    fairer = [one for one in others if one.worst_over(chosen).is_clear and one.worst_over(chosen).lead > 0]
    ways: list[tuple[list[Standing], Callable[[Standing], str]]] = [
        (
            sorted(fairer, key=lambda one: -metric.merit(one.worst_score)),
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
        f"{_behind(one, chosen, metric)}."
        for one, words in said.items()
    ]


def _behind(one: Standing, chosen: Standing, metric: Metric) -> str:
    difference = chosen.score_over(one)
    if not difference.is_clear:
        return "alike within chance"
    return f"{_points(abs(difference.lead), metric)} {'less' if difference.lead > 0 else 'more'}"


def _points(difference: float, metric: Metric) -> str:
    """Return a difference for people: of shares in points of percentage."""
    return f"{100 * difference:.2f} points" if metric.is_share else f"{difference:.3g}"


def format_compute(pmacs: float) -> str:
    """Return training compute for people, e.g. 31 PMACs or 2.15 TMACs."""
    for unit, scale in (("PMACs", 1.0), ("TMACs", 1e-3)):
        if pmacs >= scale:
            return f"{pmacs / scale:.3g} {unit}"
    return f"{pmacs / 1e-6:.3g} GMACs"


def _by_merit(standing: Standing) -> float:
    return -standing.merit
