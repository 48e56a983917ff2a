import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.presentation.report import write_report
from fedfeast.runs.folder import RunFolder

SHORT = {"training.rounds": 2, "training.clients_per_round": 3, "evaluation.every_rounds": 1}
# Sixty thousand examples: many clients and one served network keep the run short.
SYNTHETIC = {**SHORT, "data.name": "synthetic", "population.num_clients": 400, "method": {"name": "fedavg"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fedfeast.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "feast": fedfeast.train("digits", out=folder / "first", settings=SHORT),
        "fedavg": fedfeast.train("digits", out=folder / "second", settings={**SHORT, "method": {"name": "fedavg"}}),
        "synthetic": fedfeast.train("digits", out=folder / "third", settings=SYNTHETIC),
    }


def test_one_run_on_one_self_contained_page(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    files = write_report([runs["feast"]], tmp_path / "report.html")
    page = files[0].read_text()
    for part in ("Accuracy and cost", "Training", "Clients", "Coverage", "Operating points", "population score"):
        assert part in page
    what = "curve and budgets, loss and score, sizes, scores and answers by tenths, clients, coverage"
    assert page.count('data-chart="chart-') == 9, what
    assert "[population]" in page, "the resolved recipe"
    addresses = re.findall(r'(?:src|href)="([^"#][^"]*)"', page)
    assert all(address.startswith("data:") for address in addresses), "no external requests"
    names = {file.name for file in files[1:]}
    assert {"curve.svg", "curve.png", "history.svg", "sizes.svg", "first-clients.png", "first-coverage.svg"} <= names
    assert "fairness.svg" in names
    table = page.split("<h3>Who is slow, who is left out</h3>")[1].split("</table>")[0]
    assert table.count("<tr>") == 11, "a heading and ten tenths"
    assert "Simulated clients are never late" in table
    tiles = re.findall(r'<div class="tile"><b>([^<]*)</b><span>([^<]*)</span>', page)
    assert {"messages to clients", "messages back"} <= {label for _, label in tiles}
    assert max(len(value) for value, _ in tiles) <= 12, "large letters for few words"
    assert all(file.is_file() for file in files)


def test_several_runs_are_laid_over_each_other(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    page = write_report([runs["feast"], runs["fedavg"]], tmp_path / "report.html")[0].read_text()
    assert "Side by side" in page
    wins = runs["fedavg"].client_wins(runs["feast"])
    assert f"{wins.wins} / {wins.ties} / {wins.losses}" in page
    assert "different data sets" not in page
    sizes = page.split("Sizes while training")[1].split("</figure>")[0]
    for run, name in ((runs["feast"], "first, feast"), (runs["fedavg"], "second, fedavg")):
        for size in (next(iter(run.size_history)), next(reversed(run.size_history))):
            assert f'"label":"{name}, {size}"' in sizes


def test_what_differs_between_recipes_comes_first(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    page = write_report([runs["feast"], runs["fedavg"]], tmp_path / "report.html")[0].read_text()
    heading = "What differs between the recipes"
    assert page.index("<h2>") == page.index(f"<h2>{heading}</h2>")
    table = page.split(heading)[1].split("</table>")[0]
    assert "<th>setting</th><th>first</th><th>second</th>" in table
    assert "<td>method.name</td><td>feast</td><td>fedavg</td>" in table
    assert "training.rounds" not in table, "the same in both"
    same = write_report([runs["feast"], runs["feast"]], tmp_path / "same.html")[0].read_text()
    assert "<p>Nothing: the runs have the same recipe.</p>" in same
    assert heading not in write_report([runs["feast"]], tmp_path / "one.html")[0].read_text()


def test_a_run_is_titled_by_its_data(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    page = write_report([runs["synthetic"]], tmp_path / "report.html")[0].read_text()
    assert "<h1>third, trained on synthetic</h1>" in page
    assert "<h2>third, fedavg on synthetic</h2>" in page


def test_different_data_sets_are_not_compared(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    files = write_report([runs["feast"], runs["synthetic"]], tmp_path / "report.html")
    page = files[0].read_text()
    assert "different data sets (digits, synthetic)" in page
    assert "other clients or data" in page
    assert {"curve-digits.svg", "curve-synthetic.svg"} <= {file.name for file in files}


def test_published_points_lead_to_the_reasons_for_a_difference(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    paper = fedfeast.Run(runs["fedavg"].folder)
    data = paper.recipe.data.model_copy(update={"name": "cifar100"})
    paper.recipe = paper.recipe.model_copy(update={"data": data})
    page = write_report([paper], tmp_path / "report.html")[0].read_text()
    assert page.count('href="#differences"') == page.count('id="differences"') == 1
    assert "commit dbc4630" in page
    assert "#differences" not in write_report([runs["fedavg"]], tmp_path / "digits.html")[0].read_text()


def test_a_run_that_is_still_going_on(runs: dict[str, fedfeast.Run], tmp_path: Path) -> None:
    summary = runs["feast"].folder.path / "summary.json"
    content = summary.read_text()
    summary.unlink()
    try:
        page = write_report([runs["feast"]], tmp_path / "report.html")[0].read_text()
    finally:
        summary.write_text(content)
    assert "Still without a test curve: first" in page
    assert page.count('data-chart="chart-') == 6


def test_a_run_without_a_finished_round_is_refused(tmp_path: Path) -> None:
    run = fedfeast.Run.create("digits", tmp_path / "run", SHORT)
    with pytest.raises(InvalidInput, match="no finished round yet"):
        write_report([run], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_run_over_text_with_two_test_sets(
    runs: dict[str, fedfeast.Run], make_up_text_run: Callable[..., fedfeast.Run], tmp_path: Path
) -> None:
    copied = copytree(runs["fedavg"].folder.path, tmp_path / "text")
    run = make_up_text_run("text", sets=2, trained=RunFolder.open(copied))
    division = {"training": 4, "held_out": 2, "server": 0, "excluded": 0, "pooled": 0}
    measured = {"division": division, "budgets_and_data": {"rank_correlation": 0.5, "gamma": 0.25}}
    (copied / "summary.json").write_text(json.dumps({**run.summary, **measured}))
    page = write_report([run], tmp_path / "report.html")[0].read_text()
    for part in (
        "elastic network: bits per symbol at every cost",
        "Bits per symbol and cost",
        "Test bits per symbol (less is better) of every operating point",
        "Bands are standard errors over clients.",
        "0.50 correlated with budgets (gamma 0.25); 4 clients train, 2 held out.",
        "bits per symbol, set 0",
        "bits per symbol, set 1",
        "3 \N{PLUS-MINUS SIGN} 0.1",
        "<b>4</b><span>population score</span>",
    ):
        assert part in page
    assert "ccurac" not in page.split("<main>")[1].split("<h3>Recipe")[0]


def test_runs_of_different_metrics_have_figures_of_their_own(
    runs: dict[str, fedfeast.Run], make_up_text_run: Callable[..., fedfeast.Run], tmp_path: Path
) -> None:
    copied = copytree(runs["fedavg"].folder.path, tmp_path / "text")
    text = make_up_text_run("text", trained=RunFolder.open(copied))
    files = write_report([runs["feast"], text], tmp_path / "report.html")
    assert {"curve-accuracy.svg", "curve-bits.svg"} <= {file.name for file in files}
