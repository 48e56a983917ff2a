"""A study's page: the protocol it ran, its tables beside the paper's, its curves, and all of them as files."""

from pathlib import Path
from typing import Any

from fedfeast.evaluation.differences import PAGE
from fedfeast.presentation.pages import Pictures, known_differences, write_page
from fedfeast.presentation.tables import served_round
from fedfeast.runs import Run
from fedfeast.studies import StudyResult
from fedfeast.studies.protocol import departures, describe_protocol
from fedfeast.studies.tables import EN_DASH, write_tables
from fedfeast.units import format_seconds

FURTHER_SEEDS = 2  # that a study with one is advised to add


def write_study_report(result: StudyResult) -> list[Path]:
    """Write report.html, tables and pictures into the study's folder; return all files, the page first."""
    plan, findings = result.plan, result.findings
    page = plan.folder / "report.html"
    files = write_tables(findings.tables, plan.folder / "tables")
    pictures = Pictures(plan.folder / "pictures")
    content = {
        "title": plan.study.title,
        "lead": plan.study.question,
        "notes": notes_of(result),
        "protocol": describe_protocol(plan.base, plan.options.seeds, plan.rounds),
        "tables": [
            {
                "title": table.full_title,
                "header": table.header(),
                "lines": table.lines(),
                "published": table.published,
                "note": table.note,
                "links": [f"tables/{table.name}{suffix}" for suffix in (".csv", ".tex", ".md")],
            }
            for table in findings.tables
        ],
        "figures": [
            pictures.add(plot.title, plot.name, [plot.chart()], plot.caption, linked=True, published=plot.published)
            for plot in findings.pictures
        ],
        "runs": _runs(result),
        "differences": known_differences() if has_published(result) else None,
        "recipe": plan.base.to_toml(),
    }
    write_page("study.html.j2", content, page)
    return [page, *files, *pictures.files]


def notes_of(result: StudyResult) -> list[str]:
    """Return what a reader must know before the numbers."""
    why = [f"Why figures may differ from the paper's: {PAGE}."] if has_published(result) else []
    plan = result.plan
    return [*departures(plan.base, bool(plan.study.datasets)), *result.findings.notes, *_one_seed(result), *why]


def _one_seed(result: StudyResult) -> list[str]:
    """Say of a study with one seed what its margins leave out, and how long two more seeds would train."""
    runs = {one.run.folder.path: one.run for one in result.results.outcomes if one.run is not None}
    if len(result.plan.options.seeds) > 1 or not result.pairs:
        return []
    seconds = FURTHER_SEEDS * sum(float(run.summary["training_seconds"]) for run in runs.values())
    others = ",".join(str(result.plan.options.seeds[0] + further) for further in range(FURTHER_SEEDS + 1))
    return [
        "One seed: margins hold what another test set would change, and not what another training would. "
        f"--seeds {others} adds that, with {FURTHER_SEEDS * len(runs)} more runs: {format_seconds(seconds)} of "
        "training at the pace of these, one by one."
    ]


def has_published(result: StudyResult) -> bool:
    """Return whether any of the paper's figures stands beside ours."""
    findings = result.findings
    return any(table.published for table in findings.tables) or any(plot.published for plot in findings.plots)


def describe_result(result: StudyResult, files: list[Path]) -> dict[str, Any]:
    """Return a study's result as plain values."""
    plan = result.plan
    return {
        "study": plan.study.name,
        "question": plan.study.question,
        "protocol": describe_protocol(plan.base, plan.options.seeds, plan.rounds),
        "notes": notes_of(result),
        "tables": [table.to_tree() for table in result.findings.tables],
        "pairs": [pair.facts() for pair in result.pairs],
        "curves": [plot.to_tree() for plot in result.findings.plots],
        **result.findings.facts,
        "runs": [str(outcome.run.folder.path) for outcome in result.results.outcomes if outcome.run is not None],
        "report": str(files[0]),
        "files": [str(file) for file in files],
    }


def _runs(result: StudyResult) -> dict[str, Any]:
    header = [
        "run",
        "seed",
        "rounds",
        "population score",
        "by the best affordable",
        "best round",
        "training time",
        "engine",
        "folder",
    ]
    lines = []
    for outcome in result.results.outcomes:
        measured = [EN_DASH] * 6 if outcome.run is None else _measured(outcome.run)
        lines.append([outcome.arm.label, outcome.seed, outcome.recipe.training.rounds, *measured])
    return {"header": header, "lines": lines}


def _measured(run: Run) -> list[str]:
    summary, environment = run.summary, run.folder.environment()
    return [
        run.metric.show(summary["population_score"]),
        run.metric.show(run.curve.population_score(run.folder.budgets_macs(), "best")),
        served_round(summary),
        f"{summary['training_seconds']:.0f} s",
        f"{environment.get('engine', EN_DASH)}, {environment['device']}",
        run.folder.path.name,
    ]
