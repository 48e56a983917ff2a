"""One self-contained HTML page about one or several runs, and its pictures as files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.errors import InvalidInput
from fedfeast.planning.coverage import cover
from fedfeast.planning.outline import outline
from fedfeast.presentation.fairness import HEADING, fairness_caption, fairness_charts, fairness_table
from fedfeast.presentation.pages import Pictures, known_differences, write_page
from fedfeast.presentation.recipe_differences import recipe_differences
from fedfeast.presentation.run_charts import (
    clients_charts,
    compared_latency_charts,
    coverage_charts,
    curve_charts,
    has_published,
    history_charts,
    label_of,
)
from fedfeast.presentation.sizes import size_charts
from fedfeast.presentation.tables import (
    best_scores,
    certainty_column,
    cost_headings,
    costs_of,
    data_in_words,
    figure_columns,
    measured_on,
    policy_facts,
    served_round,
)
from fedfeast.runs import Run
from fedfeast.units import format_bytes, format_macs, format_threads


def write_report(runs: Sequence[Run], path: Path | str) -> list[Path]:
    """Write the page and, in a folder beside it, every picture as SVG and PNG; return all files."""
    path = Path(path)
    for run in runs:
        if not run.folder.has_finished_rounds():
            raise InvalidInput(f"{run.folder.path} has no finished round yet: {run.folder.how_to_go_on()}.")
    pictures = Pictures(path.with_name(f"{path.stem}-pictures"))
    data_sets = sorted({run.recipe.data.name for run in runs})
    metrics = list(dict.fromkeys(run.metric for run in runs))
    shared = [(data, metric) for data in data_sets for metric in metrics]
    content: dict[str, Any] = {
        "title": f"{_names(runs)}, trained on {' and '.join(data_sets)}",
        "lead": f"Federated training of one elastic network: {' and '.join(metric.title for metric in metrics)} "
        "at every cost, and what each client gets.",
        "notes": _notes(runs, data_sets, metrics),
        "recipes": {"names": [run.folder.path.name for run in runs], "rows": recipe_differences(runs)},
        "comparison": _comparison(runs) if len(runs) > 1 else [],
        "shared_figures": [_curves(runs, *of, pictures, (len(data_sets) > 1, len(metrics) > 1)) for of in shared]
        + [
            pictures.add(
                "Training",
                "history",
                history_charts(runs),
                "Mean training loss by role, and validation score.",
            ),
            _sizes(runs, pictures),
            _left_out(runs, pictures),
            *_latencies(runs, pictures),
        ],
        "runs": [_describe(run, pictures) for run in runs],
    }
    content["shared_figures"] = [figure for figure in content["shared_figures"] if figure]
    is_published = any(figure["published"] for figure in content["shared_figures"])
    content["differences"] = known_differences() if is_published else None
    write_page("report.html.j2", content, path)
    return [path, *pictures.files]


def _names(runs: Sequence[Run]) -> str:
    return " and ".join(run.folder.path.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs"


def _notes(runs: Sequence[Run], data_sets: Sequence[str], metrics: Sequence[Metric]) -> list[str]:
    notes = []
    if len(data_sets) > 1:
        notes.append(
            f"These runs are on different data sets ({', '.join(data_sets)}): "
            f"their {'accuracies' if metrics == [ACCURACY] else 'figures'} cannot be compared, "
            "so each data set has a curve of its own and no clients are counted against each other."
        )
    unfinished = [run.folder.path.name for run in runs if not run.folder.has_summary()]
    if unfinished:
        notes.append(f"Still without a test curve: {', '.join(unfinished)}.")
    return notes


def _curves(
    runs: Sequence[Run], data: str, metric: Metric, pictures: Pictures, several: tuple[bool, bool]
) -> dict[str, Any] | None:
    """Return the figure of all runs of one data set and metric; several of either are told apart by their names."""
    alike = [run for run in runs if (run.recipe.data.name, run.metric) == (data, metric)]
    measured = [run for run in alike if run.folder.has_summary()]
    if not measured:
        return None
    less = "" if metric.more_is_better else " (less is better)"
    bands = (
        "" if all(len(run.folder.test_sets()) < 2 for run in measured) else " Bands are standard errors over clients."
    )
    if any(point.interval for run in measured for point in run.curve.points):
        bands += " Bars: at 95 % certainty; the test set is small."
    kept_back = [run.folder.path.name for run in measured if "curve_from" in run.summary]
    bands += f" Measured on examples that clients kept back: {', '.join(kept_back)}." if kept_back else ""
    title = f"{metric.title[0].upper()}{metric.title[1:]}"
    measure = title if len(kept_back) == len(measured) else f"Test {metric.title}"
    caption = (
        f"{measure}{less} of every operating point over its inference cost; "
        f"below, how many clients have which budget.{bands}"
    )
    heading = f"{title} and cost"
    of_data, of_metric = several
    name = "curve" + (f"-{data}" if of_data else "") + (f"-{metric.name}" if of_metric else "")
    heading = f"{heading} on {data}" if of_data else heading
    return pictures.add(heading, name, curve_charts(measured), caption, published=has_published(measured))


def _latencies(runs: Sequence[Run], pictures: Pictures) -> list[dict[str, Any]]:
    """Return a figure for every device on which fedfeast latency measured some of the runs, and for every metric."""
    groups: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        try:
            measured = json.loads((run.folder.path / "latency.json").read_text())
            key = (measured["device"], measured["threads"], run.metric, run.recipe.data.name)
            compared_latency_charts({"": measured})
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not measured, or the file is damaged: measuring again writes it anew
        groups.setdefault(key, {})[label_of(run)] = measured
    what = "on the device that measured them; a line joins the networks that no faster one matches."
    return [
        pictures.add("Latency", "latency", compared_latency_charts(group), f"Every network's latency {what}")
        for group in groups.values()
    ]


def _sizes(runs: Sequence[Run], pictures: Pictures) -> dict[str, Any] | None:
    """Return the figure of sizes while training; None where no run kept any."""
    charts = size_charts(runs)
    if not charts:
        return None
    caption = "Validation of a few sizes of the network, from the smallest (violet) to the largest (green)."
    return pictures.add("Sizes while training", "sizes", charts, caption)


def _left_out(runs: Sequence[Run], pictures: Pictures) -> dict[str, Any] | None:
    """Return the figure of what each tenth of the clients gets and gives; None where neither is known."""
    charts = fairness_charts([(label_of(run), run.fairness) for run in runs])
    caption = (
        "What clients get, each with the largest network it affords, and how often they took part, by tenths of their "
        "budgets."
    )
    return pictures.add(HEADING, "fairness", charts, caption) if charts else None


def _comparison(runs: Sequence[Run]) -> list[list[str]]:
    rows = []
    for run in runs:
        finished = run.folder.has_summary()
        summary: dict[str, Any] = run.summary if finished else {}
        rows.append(
            [
                run.folder.path.name,
                run.recipe.data.name,
                run.recipe.method_name,
                str(len(run.folder.metrics())),
                run.metric.show(summary["population_score"]) if finished else "-",
                next((run.metric.show(best) for best in best_scores(summary)), "-"),
                f"{100 * summary['served_share']:.0f} %" if finished else "-",
                f"{summary['traffic']['reduction']:.2f}x less" if finished else "-",
                f"{summary['training_seconds']:.0f} s" if finished else "-",
                _wins(run, runs[0]),
            ]
        )
    return rows


def _wins(run: Run, first: Run) -> str:
    if run is first or not (run.folder.has_summary() and first.folder.has_summary()):
        return "-"
    try:
        wins = run.client_wins(first)
    except InvalidInput:
        return "other clients or data"
    return f"{wins.wins} / {wins.ties} / {wins.losses}"


def _describe(run: Run, pictures: Pictures) -> dict[str, Any]:
    name = run.folder.path.name
    caption = "Each client's share of the examples over its budget."
    if run.folder.has_summary() and "division" in run.summary:  # the data's own clients
        caption = f"{caption[:-1]}: {data_in_words(run.summary)}."
    figures = [pictures.add("Clients", f"{name}-clients", clients_charts(run), caption)]
    examples = np.array([float(row["num_examples"]) for row in run.folder.clients()])
    coverage = cover(outline(run.recipe), examples)
    if coverage is not None:
        caption = (
            "Share of all client data held by clients that receive a part of the tensor, by stage and block. "
            f"{coverage['activated_parameters']:,} of {coverage['routed_parameters']:,} routed parameters are trained "
            f"by some variant; psi_min = {coverage['psi_min']:.3g} local steps a round (Theorem 1)."
        )
        figures.append(pictures.add("Coverage", f"{name}-coverage", coverage_charts(coverage["parts"]), caption))
    columns = figure_columns(run.summary) | certainty_column(run.curve) if run.folder.has_summary() else {}
    return {
        "name": f"{label_of(run)} on {run.recipe.data.name}",
        "tiles": _tiles(run),
        "figures": figures,
        "headings": [*cost_headings(run.curve if columns else None), "parameters", *columns, "clients served"],
        "points": _points(run, columns) if run.folder.has_summary() else [],
        "fairness": _fairness(run),
        "environment": _environment(run),
        "recipe": run.recipe.to_toml(),
    }


def _fairness(run: Run) -> dict[str, Any]:
    measured = run.fairness
    headings, rows = fairness_table(measured)
    return {"heading": HEADING, "headings": headings, "rows": rows, "caption": fairness_caption(measured)}


def _tiles(run: Run) -> list[dict[str, str]]:
    rows = run.folder.metrics()
    tiles = [("rounds", f"{len(rows)} of {run.recipe.training.rounds}")]
    both_ways = sum(
        row["payload_parameters"] + row.get("returned_parameters", row["payload_parameters"]) for row in rows
    )
    tiles.append(("parameters sent, both ways", format_macs(both_ways)))
    for way, label in (("bytes_down", "messages to clients"), ("bytes_up", "messages back")):
        if all(way in row for row in rows):
            tiles.append((label, format_bytes(sum(row[way] for row in rows))))
    tiles.append(("training time", f"{sum(row['seconds'] for row in rows):.0f} s"))
    if run.folder.has_summary():
        summary = run.summary
        tiles = [
            ("population score", run.metric.show(summary["population_score"])),
            *(("with the best variant each affords", run.metric.show(best)) for best in best_scores(summary)),
            ("clients served", f"{100 * summary['served_share']:.0f} % of {summary['clients']}"),
            ("less traffic than the whole network", f"{summary['traffic']['reduction']:.2f}x"),
            ("best validated round", served_round(summary)),
            *tiles,
        ]
        tiles += [*measured_on(summary), *policy_facts(summary)]
    return [{"label": label, "value": value} for label, value in tiles]


def _points(run: Run, columns: Mapping[str, Sequence[str]]) -> list[list[str]]:
    curve = run.curve
    served = curve.count_affordable(run.folder.budgets_macs())
    return [
        [
            *costs_of(point, curve),
            f"{point.parameters:,}",
            *(column[position - 1] for column in columns.values()),
            str(int((served == position).sum())),
        ]
        for position, point in enumerate(curve.points, start=1)
    ]


def _environment(run: Run) -> str:
    about = run.folder.environment()
    libraries = ", ".join(f"{name} {number}" for name, number in about["libraries"].items())
    return (
        f"fedfeast {about['fedfeast']}, Python {about['python']}, {libraries}; "
        f"{about['processor']}, {about['cores']} cores, {format_threads(about['threads'])}, device {about['device']}."
    )
