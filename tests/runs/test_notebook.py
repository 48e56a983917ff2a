"""What a run shows in a notebook; the live line is tested by the notebooks themselves, in tests/docs."""

import re
from pathlib import Path

import pytest

import fedfeast
from fedfeast.data.tasks import ACCURACY
from fedfeast.runs.notebook import NotebookProgress, in_notebook

SHORT = {"training.rounds": 2, "training.clients_per_round": 2, "evaluation.every_rounds": 1, "engine.threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "feast", settings=SHORT)


def test_history_has_a_row_a_round_and_a_column_a_loss(run: fedfeast.Run) -> None:
    rows = run.folder.metrics()
    assert run.history.index.tolist() == [1, 2]
    assert run.history["seconds"].tolist() == [row["seconds"] for row in rows]
    for role in {role for row in rows for role in row["losses"]}:
        assert run.history[f"loss.{role}"].dropna().tolist() == [
            row["losses"][role] for row in rows if role in row["losses"]
        ]


def test_clients_are_numbers_by_name(run: fedfeast.Run) -> None:
    clients = run.clients
    assert clients["budget_macs"].to_numpy().tolist() == run.folder.budgets_macs().tolist()
    assert clients["num_examples"].dtype.kind == "i"
    assert clients["participates"].all()
    assert clients.index[0] == "client-000"


def test_a_curve_has_a_row_a_size(run: fedfeast.Run) -> None:
    frame = run.curve.to_frame()
    assert frame["macs"].tolist() == [point.macs for point in run.curve.points]
    assert frame.loc[run.curve.best.name, "accuracy"] == run.curve.best.accuracy


def test_a_finished_run_shows_every_size(run: fedfeast.Run) -> None:
    shown = run._repr_html_()
    assert shown.count("<tr>") == 1 + len(run.curve.points)
    assert f"{run.population_score:.1%}".replace("%", " %") in shown
    served = [int(cell) for cell in re.findall(r"<td>(\d+)</td></tr>", shown)]
    assert sum(served) == len(run.clients)
    assert repr(run) == f"Run({str(run.folder.path)!r})"


def test_a_run_that_has_not_begun_shows_itself_too(tmp_path: Path) -> None:
    begun = fedfeast.Run.create("digits", tmp_path / "<run>")
    assert "0 of 60 rounds" in begun._repr_html_()
    assert "&lt;run&gt;" in begun._repr_html_()
    assert begun.history.empty


def test_a_plain_process_is_no_notebook() -> None:
    import IPython  # noqa: F401 - loaded, and yet there is no kernel

    assert not in_notebook()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown below a cell, one line after another."""
    shown: list[str] = []

    class Handle:
        def update(self, line: object) -> None:
            shown.append(repr(line))

    monkeypatch.setattr("IPython.display.display", lambda line, display_id: Handle())
    return shown


def test_a_line_tells_of_rounds_that_go_on_and_of_those_finished_before(lines: list[str]) -> None:
    progress = NotebookProgress(ACCURACY)
    progress.on_start(2, 3, ["round-3"])
    progress.on_round({"round": 3, "losses": {"teacher": 0.5}, "validation_score": 0.75})
    progress.on_evaluation(8, 8)
    assert lines[0] == "training; round-3 is damaged and passed over"
    assert lines[1] == "round 3 of 3, loss teacher 0.500, validation 75.0 %"
    assert lines[2].startswith("1 round in ")
    progress.on_start(3, 3, [])
    assert lines[-1] == "3 rounds, finished before"
