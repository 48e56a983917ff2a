"""The data's own clients: what every size comes to on clients that never trained, beside one size and pooled data."""

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import Outline, outline
from fedfeast.recipes.splitting import HELD_OUT, KNOWN
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.results import Measure, Outcome, Results, capital
from fedfeast.studies.study import WITH_CLIENTS, Findings, Resolve, Study
from fedfeast.studies.tables import Cell, Column, Row, Table
from fedfeast.units import format_macs
from fedfeast.variants import Variant

FEAST, SINGLE, POOLED = "feast", "fedavg, mean size", "feast, pooled"


def _arms(resolve: Resolve) -> Sequence[Arm]:
    """Give FedAvg the size that FEAST serves on average, and everyone's data together the same local steps."""
    built = outline(resolve({"method.name": "feast"}))
    if built.natural is None or not len(built.natural.division.held_out):
        raise InvalidInput("study natural needs clients that never train: set data.held_out_clients, e.g. to 0.2.")
    single = {"method.max_macs": mean_served(built).price}
    return (
        method_arm("feast"),
        method_arm("fedavg", single, "mean size"),
        method_arm("feast", {"population.pooled": True, **pooled_rounds(built)}, "pooled", "FEAST, pooled data"),
    )


def mean_served(built: Outline) -> Variant:
    """Return the cached variant nearest to the mean MACs of what the training clients are served."""
    budgets = built.population.budgets_macs[list(built.participants)]
    mean = np.mean([built.cache.affordable(budget)[-1].price for budget in budgets.tolist()])
    return min(built.cache, key=lambda variant: abs(variant.price - mean))


def pooled_rounds(built: Outline) -> dict[str, int]:
    """Return the rounds, and how often to validate, that give everyone as one client the clients' local steps."""
    assert built.natural is not None
    training, sizes = built.recipe.training, built.natural.sizes[list(built.participants)]
    steps = training.rounds * min(training.clients_per_round, len(sizes)) * _batches(sizes, training.batch_size).mean()
    rounds = max(1, round(steps / _batches(sizes.sum(), training.batch_size)))
    every = max(1, round(built.recipe.evaluation.every_rounds * rounds / training.rounds))
    return {"training.rounds": rounds, "evaluation.every_rounds": every}


def _batches(num_examples: NDArray[np.int64] | np.int64, batch_size: int) -> NDArray[np.int64]:
    return np.asarray(-(-num_examples // batch_size))


def held_out_merits(outcome: Outcome) -> NDArray[np.float64]:
    """Return what every size comes to on each held-out client, (clients, sizes), greater for what is better."""
    assert outcome.run is not None
    metric, rows = outcome.curve.metric, outcome.run.folder.client_values()[HELD_OUT]
    return np.array([[metric.shown(metric.merit(value)) for value in rows[client]] for client in sorted(rows)])


def larger_half_over_smallest(outcome: Outcome) -> NDArray[np.float64]:
    """Return by how much the larger half of the sizes is better than the smallest, for every held-out client."""
    merits = held_out_merits(outcome)
    larger = merits.shape[1] - merits.shape[1] // 2
    return np.asarray(merits[:, larger:].mean(axis=1) - merits[:, 0])


def mean_and_error(differences: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the mean of clients' differences and its standard error; who measured nothing does not count."""
    known = differences[np.isfinite(differences)]
    error = float(known.std(ddof=1)) / sqrt(len(known)) if len(known) > 1 else None
    return (float(known.mean()) if len(known) else None), error


def _conclude(results: Results) -> Findings:
    single = results.of(SINGLE)[0].curve.points[0]
    lines = [results.line(FEAST), results.line(SINGLE), results.line(POOLED, dashed=True)]
    caption = f"{capital(results.measured_in)} of clients that never trained."
    return Findings(
        (_sizes(results, single.macs), _gains(results, single.macs)),
        (results.plot("natural", "Held-out clients", caption, lines),),
        (
            f"FedAvg trains one network of {format_macs(single.macs)} MACs, the cached size nearest to what FEAST "
            "serves the training clients on average, on those of them that afford it.",
            "Pooled data: the same examples as one client's, with training.rounds = "
            f"{results.of(POOLED)[0].recipe.training.rounds}, whose local steps are nearest to all that FEAST's "
            "clients take.",
            *([] if results.metric.more_is_better else [f"Of {results.metric.title} less is better."]),
        ),
    )


def _sizes(results: Results, single_macs: int) -> Table:
    """Return the table of every size: FEAST on both test sets, FedAvg at its own, and the pooled bound."""
    rows = []
    for position, macs in enumerate(results.cached_macs):
        one_size = results.cell(_value(HELD_OUT, 0), SINGLE) if macs == single_macs else Cell()
        cells = (
            results.cell(_value(HELD_OUT, position), FEAST),
            results.cell(_error(position), FEAST),
            results.cell(_value(KNOWN, position), FEAST),
            one_size,
            results.cell(_value(HELD_OUT, position), POOLED),
            results.cell(_error(position), POOLED),
        )
        rows.append(Row(format_macs(macs), cells))
    columns = ("FEAST, held-out", "s.e.", "FEAST, known", "FedAvg, held-out", "pooled, held-out", "pooled s.e.")
    note = "Held-out clients never train; known ones do, and keep examples back. s.e.: standard error over clients."
    title = f"{capital(results.metric.title)} of every size"
    return Table("sizes", title, "MACs", _columns(results, *columns), tuple(rows), results.measured_in, note)


def _gains(results: Results, single_macs: int) -> Table:
    """Return the table of what larger sizes gain, and of FEAST beside the two others."""
    size = results.cached_macs.index(single_macs)

    def over_fedavg(feast: Outcome, single: Outcome) -> NDArray[np.float64]:
        return np.asarray(held_out_merits(feast)[:, size] - held_out_merits(single)[:, 0])

    def over_feast(feast: Outcome, pooled: Outcome) -> NDArray[np.float64]:
        return np.asarray(held_out_merits(pooled)[:, -1] - held_out_merits(feast)[:, -1])

    def row(label: str, differences: Callable[..., NDArray[np.float64]], *arms: str) -> Row:
        mean = results.cell(lambda *outcomes: mean_and_error(differences(*outcomes))[0], *arms)
        error = results.cell(lambda *outcomes: mean_and_error(differences(*outcomes))[1], *arms)
        return Row(label, (mean, error))

    rows = (
        row("FEAST, larger half over the smallest", larger_half_over_smallest, FEAST),
        row("pooled, larger half over the smallest", larger_half_over_smallest, POOLED),
        row(f"FEAST over FedAvg at {format_macs(single_macs)}", over_fedavg, FEAST, SINGLE),
        row("pooled over FEAST at the largest", over_feast, FEAST, POOLED),
    )
    note = (
        "Paired: the difference of every held-out client, their mean and its standard error; a client counts alike "
        "whatever it holds."
    )
    unit = f"points of {results.measured_in}" if results.metric.is_share else results.measured_in
    return Table("gains", "What is gained", "difference", _columns(results, "better by", "s.e."), rows, unit, note)


def _columns(results: Results, *headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading, 2 if results.metric.is_share else 3) for heading in headings)


def _value(test_set: str, position: int) -> Measure:
    def value(outcome: Outcome) -> float | None:
        assert outcome.run is not None
        curve = outcome.run.folder.test_sets().get(test_set)
        return None if curve is None else curve.metric.shown(curve.points[position].value)

    return value


def _error(position: int) -> Measure:
    def error(outcome: Outcome) -> float | None:
        found = outcome.curve.points[position].standard_error
        return None if found is None else outcome.curve.metric.shown(found)

    return error


NATURAL = Study(
    "natural",
    "Clients as the data have them",
    "What do larger sizes gain on clients that never trained, and what would one size or pooled data give?",
    _arms,
    _conclude,
    ("training.rounds", "evaluation.every_rounds", "population.pooled"),
    datasets=tuple(WITH_CLIENTS),
)
