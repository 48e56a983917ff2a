"""Without an elastic network: FedAvg at one size for those who afford it, and clients that train alone."""

from collections.abc import Sequence

import numpy as np

from fedfeast.planning.plan import plan_compute
from fedfeast.recipes.building import build_parts
from fedfeast.studies.alone import ClientAlone
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.results import Outcome, Results, anchors_of
from fedfeast.studies.study import Findings, Resolve, Study
from fedfeast.studies.tables import Cell, Column, Estimate, Row, Table

GROUPS = 5  # of clients by budget, in the table of those that train alone


def _arms(resolve: Resolve) -> list[Arm]:
    prices = [variant.price for variant in build_parts(resolve({})).cache]
    return [
        method_arm("feast"),
        *(
            method_arm("fedavg", {"method.max_macs": anchor.budget_macs}, f"{anchor.label} MACs")
            for anchor in anchors_of(prices)
        ),
    ]


def _served(outcome: Outcome) -> float:
    """Return the percentage of clients that afford some network of a run."""
    return 100 * float(np.mean(outcome.budgets_macs >= outcome.curve.points[0].price))


def _of_served(outcome: Outcome) -> float | None:
    """Return the mean value of the clients that are served at all."""
    served = [outcome.at(budget) for budget in outcome.budgets_macs]
    values = [value for value in served if value is not None]
    return float(np.mean(values)) if values else None


def _mean(results: Results, clients: Sequence[ClientAlone]) -> float | None:
    shown = results.metric.shown
    return float(np.mean([shown(one.value) for one in clients])) if clients else None


def _conclude(results: Results) -> Findings:
    first = next(iter(results.arms))
    pmacs = {(one.arm.name, one.seed): plan_compute(one.recipe)["training_pmacs"] for one in results.outcomes}
    rows = []
    for name, arm in results.arms.items():
        cells = (
            results.cell(lambda outcome: outcome.score, name),
            results.cell(_of_served, name),
            results.cell(_served, name),
            results.cell(lambda one: pmacs[one.arm.name, one.seed] / pmacs[first, one.seed], name),
        )
        rows.append(Row(arm.label, cells))
    tables = []
    if results.alone:
        rows.append(_row_of_alone(results))
        tables.append(_by_budget(results, first))
    columns = (
        Column(f"population score{results.percent}"),
        Column(f"of those served{results.percent}"),
        Column("clients served (%)"),
        Column("training compute"),
    )
    note = (
        "FedAvg trains one size on the clients that afford it; the others are neither trained nor served, and count in "
        f"the population score as without a network. Training compute is times that of {results.arms[first].label}."
    )
    lines = [results.line(arm, colour) for colour, arm in enumerate(results.arms)]
    title = "One size, and no federation"
    table = Table("one-size", title, "setting", columns, tuple(rows), results.measured_in, note)
    return Findings((table, *tables), (results.plot("one-size", title, note, lines),))


def _row_of_alone(results: Results) -> Row:
    """Return the clients that trained alone as a row of the first table."""
    seeds = results.alone.values()
    score = [_mean(results, clients) for clients in seeds]
    of_served = [_mean(results, [one for one in clients if one.macs is not None]) for clients in seeds]
    served = [100 * float(np.mean([one.macs is not None for one in clients])) for clients in seeds]
    estimates = (Estimate.of(score), Estimate.of(of_served), Estimate.of(served))
    return Row("local training alone", (*map(Cell, estimates), Cell()))


def _by_budget(results: Results, federated: str) -> Table:
    """Set clients that trained alone beside what the federation serves them, from small budgets to large ones."""
    rows = []
    outcomes = {one.seed: one for one in results.of(federated)}
    number = len(next(iter(results.alone.values())))
    for places in np.array_split(np.arange(number), min(GROUPS, number)):
        groups = {seed: [clients[place] for place in places] for seed, clients in results.alone.items()}
        budgets = [client.budget_macs / 1e6 for clients in groups.values() for client in clients]
        alone = [_mean(results, clients) for clients in groups.values()]
        served = [_served_to(outcomes[seed], clients) for seed, clients in groups.items()]
        cells = (Cell(Estimate.of(alone)), Cell(Estimate.of(served)))
        rows.append(Row(f"{min(budgets):.3g} to {max(budgets):.3g}", cells))
    note = (
        f"{number} clients, evenly spread over the budgets, each train the largest network they afford on their own "
        "examples in every round, with nothing merged; each one's own model is tested on the common test set, its "
        "statistics recalibrated on the server-held examples as everybody's are."
    )
    columns = (Column("alone"), Column(f"served by {results.arms[federated].label}"))
    title = "Clients that train alone, by budget"
    return Table("one-size-alone", title, "budgets (M MACs)", columns, tuple(rows), results.measured_in, note)


def _served_to(outcome: Outcome, clients: Sequence[ClientAlone]) -> float:
    """Return the mean of what the run serves to these clients."""
    unserved = outcome.curve.metric.shown(outcome.curve.unserved)
    values = [outcome.at(client.budget_macs) for client in clients]
    return float(np.mean([unserved if value is None else value for value in values]))


ONE_SIZE = Study(
    "one-size",
    "FedAvg at five sizes, and local training alone",
    "Is an elastic network better than one size for those who afford it, or than no federation at all?",
    _arms,
    _conclude,
    alone=True,
)
