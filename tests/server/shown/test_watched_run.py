import json
import os
from pathlib import Path
from shutil import copytree, rmtree

import fedfeast
from fedfeast.server.shown.watched_run import WatchedRun


def test_a_finished_run(trained: Path) -> None:
    run = WatchedRun(trained, "digits")
    seen = run.seen
    assert seen.state == "finished"
    assert len(seen.rows) == 14
    assert seen.summary is not None
    assert [one["test_accuracy"] for one in seen.variants] == [one["accuracy"] for one in seen.summary["curve"]]
    assert [one["test_value"] for one in seen.variants] == [one["value"] for one in seen.summary["curve"]]
    assert sum(one["clients"] for one in seen.variants) == 40
    variant = seen.variants[0]["id"]
    assert run.offer_of(variant) is seen.offer
    assert run.offer_of("1-00000000") is None
    run.refresh()
    assert run.seen.offer is seen.offer, "nothing is loaded again where nothing has changed"
    assert run.seen.variants is seen.variants


def test_a_run_as_it_grows(trained: Path, tmp_path: Path) -> None:
    settings = {"training.rounds": 14, "evaluation.every_rounds": 2}
    run = WatchedRun(fedfeast.Run.create("digits", tmp_path / "run", settings).folder.path, "run")
    assert (run.seen.state, run.seen.note, run.seen.fleet) == ("waiting", "No round is finished yet.", None)
    for name in ("metrics.jsonl", "clients.csv"):
        (tmp_path / "run" / name).write_bytes((trained / name).read_bytes())
    run.refresh()
    begun = run.seen
    assert begun.state == "unevaluated"
    assert begun.fleet is not None
    assert begun.offer is None
    copytree(trained / "checkpoints", tmp_path / "run" / "checkpoints")
    run.refresh()
    assert len(run.seen.variants) == 8
    assert run.seen.variants[0]["test_accuracy"] is None
    (tmp_path / "run" / "summary.json").write_bytes((trained / "summary.json").read_bytes())
    run.refresh()
    finished = run.seen
    assert finished.state == "finished"
    assert finished.variants[0]["test_accuracy"] is not None


def test_who_took_part_is_counted_as_rounds_are_added_and_cut(folder: Path) -> None:
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)

    def answers(watched: WatchedRun, number: int) -> bool:
        metrics.write_text("".join(lines[:number]))
        watched.refresh()
        expected = sum(len(json.loads(line)["clients"]) for line in lines[:number])
        fairness = watched.seen.fairness
        return fairness is not None and sum(one.answered or 0 for one in fairness.deciles) == expected

    run = WatchedRun(folder, "run")
    assert run.seen.fairness == run.run.fairness
    assert all(answers(run, number) for number in (5, 6, 9, 9, 2, 3, 14))
    (folder / "clients.csv").rename(folder / "moved.csv")
    run.refresh()
    assert run.seen.fairness is None
    (folder / "moved.csv").rename(folder / "clients.csv")
    assert answers(run, 14)


def test_what_was_just_replaced_is_still_handed_out(folder: Path) -> None:
    run = WatchedRun(folder, "run")
    first = run.seen.offer
    for best in (folder / "checkpoints").glob("best-*"):
        os.utime(best, ns=(1, 1))
    run.refresh()
    assert run.seen.offer is not first
    assert run._offers == (run.seen.offer, first)


def test_damaged_checkpoints_are_said(folder: Path) -> None:
    for file in (folder / "checkpoints").glob("*.safetensors"):
        file.write_bytes(b"damaged")
    run = WatchedRun(folder, "run")
    assert run.seen.offer is None
    assert run.seen.note.startswith("every checkpoint in")
    run.refresh()
    assert run.seen.note.startswith("every checkpoint in")


def test_a_folder_that_vanishes(folder: Path) -> None:
    run = WatchedRun(folder, "run")
    run.note_problem("it is gone")
    assert run.seen.note == "The run's folder cannot be read (it is gone)."
    assert len(run.seen.variants) == 8
    variant = run.seen.variants[0]["id"]
    assert (run.is_gone, run.has_lost(variant)) == (False, False)
    rmtree(folder)
    assert (run.is_gone, run.has_lost(variant), run.offer_of(variant)) == (True, True, None), "before it is looked at"
    run.refresh()
    assert (run.seen.state, run.seen.note) == ("gone", "The run's folder is gone.")
    assert len(run.seen.variants) == 0
    assert (run.has_lost(variant), run.has_lost("1-00000000")) == (True, False)
    assert not folder.exists()


def test_a_folder_that_comes_back(folder: Path) -> None:
    run = WatchedRun(folder, "run")
    variant = run.seen.variants[0]["id"]
    folder.rename(folder.with_name("elsewhere"))
    run.refresh()
    folder.with_name("elsewhere").rename(folder)
    run.refresh()
    assert (run.seen.state, run.has_lost(variant)) == ("finished", False)
    assert run.offer_of(variant) is run.seen.offer
