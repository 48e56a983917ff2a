"""A list of long runs is trained some at once, goes on at the next call, and keeps what each came to."""

import json
from pathlib import Path
from typing import Any

import pytest
import run_queue
from tiny import TINY, as_words

from fedfeast.recipes import load_recipe
from fedfeast.runs import Run

QUEUES = sorted((Path(run_queue.__file__).parents[1] / "queues").glob("*.toml"))
COMMON = [f"--set={one}" for one in as_words({**TINY, "evaluation.every_rounds": 2}) if one != "--set"]


def written(folder: Path, *runs: tuple[str, dict[str, Any]]) -> Path:
    lines = []
    for name, settings in runs:
        lines += ["[[run]]", f'name = "{name}"', 'recipe = "digits"', "[run.set]"]
        lines += [f'"{key}" = {json.dumps(value)}' for key, value in settings.items()]
    (folder / "queue.toml").write_text("\n".join(lines))
    return folder / "queue.toml"


def work(queue: Path, minutes: float, at_once: int = 1) -> Path:
    kept = queue.parent / "kept"
    words = [str(queue), "--runs", str(queue.parent / "runs"), "--kept", str(kept), "--minutes", str(minutes)]
    run_queue.main([*words, "--at-once", str(at_once), *COMMON])
    return kept


def test_runs_side_by_side_are_kept_and_not_trained_again(tmp_path: Path) -> None:
    queue = written(tmp_path, ("one", {"training.rounds": 2}), ("two", {"training.rounds": 2, "seed": 1}))
    kept = work(queue, 5, at_once=2)
    facts = {name: json.loads((kept / name / "run.json").read_text()) for name in ("one", "two")}
    assert [one["rounds"] for one in facts.values()] == [2, 2]
    assert facts["two"]["command"] == "fedfeast train digits --set=training.rounds=2 --set=seed=1"
    weights = (tmp_path / "runs" / "one" / "summary.json").stat().st_mtime_ns
    work(queue, 5)
    assert (tmp_path / "runs" / "one" / "summary.json").stat().st_mtime_ns == weights


def test_what_has_no_time_left_is_saved_told_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue, "LEAST_MINUTES", 0.05)
    queue = written(tmp_path, ("long", {"training.rounds": 100_000}))
    kept = work(queue, 0.2)
    rounds = [json.loads(line)["round"] for line in (kept / "long-so-far.jsonl").read_text().splitlines()]
    run = Run.open(tmp_path / "runs" / "long")
    assert rounds == list(range(2, run.folder.metrics()[-1]["round"] + 1, 2))
    assert not (kept / "long").exists()
    work(queue, 0.01)  # too little to begin with anything
    assert Run.open(tmp_path / "runs" / "long").folder.metrics()[-1]["round"] == rounds[-1]
    work(queue, 0.2)
    assert Run.open(tmp_path / "runs" / "long").folder.metrics()[-1]["round"] > rounds[-1]


def test_a_run_that_fails_is_named_and_the_others_are_trained(tmp_path: Path) -> None:
    queue = written(tmp_path, ("bad", {"training.rounds": 0}), ("good", {"training.rounds": 2}))
    with pytest.raises(SystemExit, match="bad"):
        work(queue, 5)
    assert (tmp_path / "kept" / "good" / "run.json").is_file()


@pytest.mark.parametrize(
    "content", ["", "[[run]]\nname = 'one'\n", "run = 3", '[[run]]\nname = "a/b"\nrecipe = "digits"']
)
def test_what_is_no_queue_is_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queue.toml").write_text(content)
    with pytest.raises(SystemExit):
        work(tmp_path / "queue.toml", 5)
    assert "queue.toml" in capsys.readouterr().err


@pytest.mark.parametrize("queue", QUEUES, ids=lambda path: path.stem)
def test_every_queue_has_recipes_that_can_be_read(queue: Path) -> None:
    runs = run_queue.read_queue(queue)
    assert runs
    for one in runs:
        assert load_recipe(one.recipe, one.settings).training.rounds >= 400
