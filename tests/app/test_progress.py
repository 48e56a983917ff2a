import io
import re
import time

import pytest
from rich.console import Console
from rich.text import Text

from fedfeast.app.progress import CountedProgress, LiveProgress, ShareProgress, SideBySideProgress, StudyProgress
from fedfeast.data.tasks import task_named
from fedfeast.studies import RunProgress

ROW = {"round": 3, "losses": {"teacher": 1.25, "student": 2.5}, "validation_score": 0.5}


def shown(terminal: bool) -> str:
    stream = io.StringIO()
    with LiveProgress(Console(file=stream, force_terminal=terminal, width=120)) as progress:
        progress.on_start(2, 3, ["round-000003.safetensors"])
        progress.on_round(dict(ROW))
        progress.on_evaluation(0, 1)
        progress.on_evaluation(1, 1)
    return stream.getvalue()


def test_a_terminal_sees_bars() -> None:
    text = shown(terminal=True)
    assert "training" in text
    assert "test curve" in text
    assert "3/3" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bar_counter_and_remaining_time_stay_beside_losses_and_validation(width: int) -> None:
    stream = io.StringIO()
    losses = {"student": 1.234, "supervised": 2.345, "teacher": 0.456}
    with LiveProgress(Console(file=stream, force_terminal=True, width=width)) as progress:
        progress.on_start(0, 4000, [])
        for number in range(1, 4):
            time.sleep(0.02)  # as a round takes
            progress.on_round({"round": number, "losses": losses, "validation_score": 0.987})
    *_, last = Text.from_ansi(stream.getvalue()).plain.rpartition("training")  # what it was drawn over with at last
    bar, *below = last.splitlines()
    assert re.search(r"━{5,} +3/4000 \d+:\d\d:\d\d", bar), bar
    assert len(f"training{bar}") <= width
    told = " ".join(" ".join(below).split())
    assert "loss student 1.234 supervised 2.345 teacher 0.456 validation 98.7 %" in told
    assert "…" not in told


SIZES = [{"name": f"{place}.234M", "macs": place, "value": 0.9 + place / 1000} for place in range(1, 57)]


@pytest.mark.parametrize(("width", "shown_sizes"), [(60, 5), (80, 7), (120, 12)])
def test_sizes_are_a_table_that_fits(width: int, shown_sizes: int) -> None:
    stream = io.StringIO()
    with LiveProgress(Console(file=stream, force_terminal=True, width=width)) as progress:
        progress.on_start(0, 4000, [])
        progress.on_round({**ROW, "validation_sizes": SIZES})
        progress.on_round({"round": 4, "losses": {"teacher": 1.0}})  # the last validation stays
    *_, last = Text.from_ansi(stream.getvalue()).plain.rpartition("training")
    names, values = (line.rstrip() for line in last.splitlines()[2:4])
    assert names.split()[0] == "size"
    assert values.startswith("validation, %  ")
    assert (names.split()[1], names.split()[-1]) == ("1.234M", "56.234M"), "from the smallest to the largest"
    assert (values.split()[2], values.split()[-1]) == ("90.1", "95.6")
    assert len(names.split()) - 1 == len(values.split()) - 2 == shown_sizes
    assert max(len(names), len(values)) <= width
    assert "4/4000" in last


def test_sizes_are_words_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with LiveProgress(Console(file=stream, width=120)) as progress:
        progress.on_start(2, 3, [])
        progress.on_round({**ROW, "validation_sizes": SIZES[:2]})
    assert stream.getvalue().splitlines()[-1].endswith("  validation 50.0 %  by size 1.234M 90.1, 2.234M 90.2 %")


def test_runs_side_by_side_fit_a_narrow_terminal() -> None:
    stream = io.StringIO()
    progress = SideBySideProgress(Console(file=stream, force_terminal=True, width=60))
    progress.judge_by(task_named("classification").metric)
    name = "FEAST without its lookahead, seed 0"
    with progress:
        for done in (1, 2):
            both = [RunProgress(name, "training", done, 4000, 0.25, 0.5), RunProgress("FjORD", "training", 1, 4000)]
            progress.on_progress(both)
    text = Text.from_ansi(stream.getvalue()).plain
    assert re.search(r"FEAST without its looka… ━{5,} +2/4000 ", text), text
    assert f"{name}: 0.25 s a round validation 50.0 %" in " ".join(text.split())


def test_elsewhere_there_are_lines() -> None:
    lines = shown(terminal=False).splitlines()
    assert lines == [
        "checkpoint round-000003.safetensors is damaged and passed over",
        "going on after round 2",
        "round 3/3  loss teacher 1.250 student 2.500  validation 50.0 %",
        "test curve 1/1",
    ]


def test_a_study_names_its_runs_and_clears_their_bars() -> None:
    stream = io.StringIO()
    progress = StudyProgress(Console(file=stream, width=120))
    with progress:
        progress.on_run(1, 2, "FEAST, seed 0", reused=True)
        progress.on_run(2, 2, "FedAvg, [seed] 0", reused=False)
        progress.on_start(0, 3, [])
        progress.on_round(dict(ROW))
        assert progress.current == "run 2 of 2 (FedAvg, [seed] 0)"
        progress.on_run(3, 3, "HeteroFL, seed 0", reused=False)
    assert stream.getvalue().splitlines() == [
        "run 1 of 2  FEAST, seed 0, finished before",
        "run 2 of 2  FedAvg, [seed] 0",
        "round 3/3  loss teacher 1.250 student 2.500  validation 50.0 %",
        "run 3 of 3  HeteroFL, seed 0",
    ]


def test_a_study_shows_scores_as_what_they_are() -> None:
    stream = io.StringIO()
    progress = StudyProgress(Console(file=stream, width=120))
    progress.judge_by(task_named("next-token").metric)
    with progress:
        progress.on_run(1, 1, "FEAST, seed 0", reused=False)
        progress.on_start(0, 3, [])
        progress.on_round({**ROW, "validation_score": 2.5})
    assert "validation bits per symbol 2.5" in stream.getvalue()


def test_counted_work_shows_how_far_it_is() -> None:
    stream = io.StringIO()
    with CountedProgress(Console(file=stream, force_terminal=True, width=120), "searching", 2) as progress:
        progress.advance("25M MACs")
        progress.advance("50M MACs")
    assert "searching" in stream.getvalue()
    assert "2/2" in stream.getvalue()
    assert "50M MACs" in stream.getvalue()


def test_shares_of_work_are_for_terminals_alone() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        with ShareProgress(Console(file=stream, force_terminal=terminal, width=120)) as progress:
            progress.show("decoding [a]", 10, 40)
            progress.show("checking", 1, 1)
            progress.show("decoding [a]", 30, 40)
        assert ("decoding [a]" in stream.getvalue()) is terminal
        assert ("75 %" in stream.getvalue()) is terminal
        assert ("checking" in stream.getvalue()) is terminal


def test_other_metrics_than_the_accuracy_are_named() -> None:
    stream = io.StringIO()
    with LiveProgress(Console(file=stream, width=120), task_named("next-token").metric) as progress:
        progress.on_start(2, 3, [])
        progress.on_round({"round": 3, "losses": {"teacher": 1.25}, "validation_score": 2.34567})
    assert "round 3/3  loss teacher 1.250  validation bits per symbol 2.346" in stream.getvalue()


def side_by_side(terminal: bool) -> list[str]:
    stream = io.StringIO()
    progress = SideBySideProgress(Console(file=stream, force_terminal=terminal, width=160))
    progress.judge_by(task_named("classification").metric)
    waiting, starting = RunProgress("FjORD [x]", "waiting", 0, 4), RunProgress("FjORD [x]", "starting", 0, 4)
    with progress:
        progress.on_run(1, 3, "FEAST", reused=True)
        progress.on_device_shared("2 runs side by side on the GPU")
        progress.on_progress([RunProgress("FIARSE", "training", 1, 4, 0.25), waiting])
        progress.on_progress([RunProgress("FIARSE", "training", 3, 4, 0.25, 0.5), starting])
        assert progress.current == "FIARSE (after round 3) and FjORD [x] (after round 0)"
        for _ in range(2):
            progress.on_progress([RunProgress("FIARSE", "finished", 4, 4, 0.2, 0.75), starting])
        progress.on_progress([RunProgress("FIARSE", "finished", 4, 4), RunProgress("FjORD [x]", "failed", 0, 4)])
    return stream.getvalue().splitlines()


def test_runs_side_by_side_have_a_line_each_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.app.progress.PLAIN_EVERY_SECONDS", 0.0)
    assert [line.partition("  about")[0] for line in side_by_side(terminal=False)] == [
        "run 1 of 3  FEAST, finished before",
        "2 runs side by side on the GPU",
        "FIARSE  round 1/4  0.25 s a round",
        "all runs  round 1/8",
        "FIARSE  round 3/4  0.25 s a round  validation 50.0 %",
        "FjORD [x]  round 0/4  starting",
        "all runs  round 3/8",
        "FIARSE finished after round 4  0.20 s a round  validation 75.0 %",
        *["FjORD [x]  round 0/4  starting", "all runs  round 4/8"] * 2,
        "FjORD [x] failed after round 0",
        "all runs  round 4/8",
    ]


def test_runs_side_by_side_have_a_bar_each_on_a_terminal() -> None:
    text = "\n".join(side_by_side(terminal=True))
    for part in ("FIARSE", "FjORD [x]", "all runs", "4/8"):
        assert part in text
    assert text.count("FIARSE finished") == 1
