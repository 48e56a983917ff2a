"""What a comparison of candidates found: the advice, a table, what was reached at which traffic, and the curves."""

from collections.abc import Sequence
from typing import Any

from fedfeast.data.tasks import ACCURACY
from fedfeast.studies.arms import LABELS
from fedfeast.studies.choosing.advice import Advice, advise
from fedfeast.studies.choosing.candidates import LeftOut
from fedfeast.studies.choosing.comparing import Standing
from fedfeast.studies.pairs import compare_arms
from fedfeast.studies.plots import Plot, Scatter, ScatterPoint
from fedfeast.studies.results import Results, capital
from fedfeast.studies.study import Findings
from fedfeast.studies.tables import Cell, Column, Estimate, Row, Table
from fedfeast.units import BYTES_UNITS, PMACS_UNITS, suited_unit

OFF = 0.25  # relative: rounds that took so much longer or less than planned are said
MARK = " *"  # of the recommended method


def conclude_choice(results: Results, left_out: Sequence[LeftOut], minutes: float | None) -> Findings:
    """Rank the candidates and recommend one; minutes are those that each was to train."""
    standings = [Standing.of(name, arm.label, results.of(name)) for name, arm in results.arms.items()]
    standings.sort(key=lambda one: -one.merit)
    advice = advise(
        standings, results.metric, lambda name: {pair.arm.name: pair for pair in compare_arms(results, name)}
    )
    return Findings(
        (_table(results, standings, advice),),
        (_curves(results, standings),),
        (*advice.sentences, *_remarks(results, standings, advice, minutes), *_left_out(left_out)),
        (_picture(results, standings),),
        _facts(standings, advice, left_out),
        advice.best.name,
    )


def _table(results: Results, standings: Sequence[Standing], advice: Advice) -> Table:
    shown = results.metric.shown
    bytes_unit, per_byte = suited_unit((one.traffic_bytes for one in standings), BYTES_UNITS)
    macs_unit, per_pmac = suited_unit((one.pmacs for one in standings), PMACS_UNITS)
    all_served = all(one.served == 1 for one in standings)
    rows = []
    for one in standings:
        served = () if all_served else (100 * one.served,)
        costs = (one.rounds, one.seconds, one.traffic_bytes / per_byte, one.pmacs / per_pmac)
        cells = (Cell(Estimate(value)) for value in (shown(one.worst_score), *served, *costs))
        label = f"{one.label}{MARK}" if one is advice.recommended else one.label
        rows.append(Row(label, (results.cell(lambda outcome: outcome.score, one.name), *cells)))
    columns = (
        Column(f"score{results.percent}"),
        Column(f"worst tenth{results.percent}"),
        *(() if all_served else (Column("served (%)", 0),)),
        Column("rounds", 0),
        Column("seconds", 0),
        Column(f"{bytes_unit} sent", 1),
        Column(macs_unit, 1),
    )
    note = (
        f"{MARK.strip()} recommended. Best score first: what the average client gets from the largest network that it "
        f"affords. Worst tenth: the clients, by budgets, that are served worst. {bytes_unit} sent, both ways, and "
        f"{macs_unit} computed are of all clients and rounds, seconds those of the rounds on this machine."
    )
    return Table("choose", f"Methods for {results.base.name}", "method", columns, tuple(rows), note=note)


def _picture(results: Results, standings: Sequence[Standing]) -> Scatter:
    unit, per_byte = suited_unit((one.traffic_bytes for one in standings), BYTES_UNITS)
    shown, order = results.metric.shown, [*LABELS, *(one.name for one in standings)]
    points = tuple(
        ScatterPoint(
            one.label, one.traffic_bytes / per_byte, shown(one.score), shown(one.score_reach), order.index(one.name)
        )
        for one in standings
    )
    return Scatter(
        "choose-traffic",
        f"Population score over the traffic of training, {results.data}",
        "What the average client gets, and what all messages of training came to. Bars: where 95 % of scores on other "
        "test examples would lie.",
        f"traffic of training, both ways ({unit}, log scale)",
        points,
        results.metric,
    )


def _curves(results: Results, standings: Sequence[Standing]) -> Plot:
    return results.plot(
        "choose-curves",
        f"{capital(results.metric.title)} of every size",
        f"Test {results.metric.title} over inference cost: what a device of a budget would get from each method. Lines "
        "connect measured points only to guide the eye.",
        [results.line(one.name) for one in standings],
    )


def _remarks(results: Results, standings: Sequence[Standing], advice: Advice, minutes: float | None) -> list[str]:
    """Say how far the comparison can be trusted."""
    each = f"{results.base.training.rounds} rounds" if minutes is None else f"{minutes:g} minutes on this machine"
    remarks = [f"The order is that after {each} each; a longer training may change it."]
    classes = results.base.data.facts.known.get("classes")
    if results.metric == ACCURACY and classes and advice.best.score - advice.best.score_reach <= 1 / classes:
        remarks.append(f"No candidate is clearly better than a guess, {1 / classes:.1%}: give them more time.")
    off = [one for one in standings if minutes is not None and abs(one.seconds / (60 * minutes) - 1) > OFF]
    if off:
        told = ", ".join(f"{one.label} {one.seconds:.0f} s" for one in off)
        remarks.append(f"By the clock rounds took another time than planned, as on a busy machine: {told}.")
    return remarks


def _left_out(left_out: Sequence[LeftOut]) -> list[str]:
    return [f"Left out: {'; '.join(map(str, left_out))}."] if left_out else []


def _facts(standings: Sequence[Standing], advice: Advice, left_out: Sequence[LeftOut]) -> dict[str, Any]:
    """Return the advice for programs."""
    return {
        "recommended": advice.recommended.name,
        "advice": list(advice.sentences),
        "candidates": [
            {
                "name": one.name,
                "population_score": one.score,
                "tied_with_best": one in advice.tied,
                "worst_tenth_score": one.worst_score,
                "served_share": one.served,
                "rounds": one.rounds,
                "traffic_bytes": one.traffic_bytes,
                "training_pmacs": one.pmacs,
                "training_seconds": one.seconds,
            }
            for one in standings
        ],
        "left_out": {one.name: one.sentence for one in left_out},
    }
