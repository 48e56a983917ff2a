"""A study's runs side by side, stopped in every way: the same command goes on, and ends with the bits of a sequence."""

import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from processes import ended, run, start
from tiny import TINY, as_words

SETTINGS = {
    **TINY,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 15,
    "checkpoint.every_rounds": 2,
}
ROUNDS, ARMS = 30, 3


def command(out: Path, *more: str) -> list[str]:
    words = ["study", "serving-density", "--dataset", "digits", "--rounds", str(ROUNDS), "--out", str(out)]
    return [*words, *more, *as_words(SETTINGS)]


def children(out: Path) -> dict[int, str]:
    """Return the processes that train in the study's runs, by number: the folder of each. A zombie has no words."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "fedfeast.studies.side_by_side.child" in words and words[-2].startswith(str(out.parent)):
            found[int(place.parent.name)] = words[-2]
    return found


def rounds_by_folder(out: Path) -> dict[str, int]:
    """Return the finished rounds of each run."""
    files = (out.parent / "runs").glob("*/metrics.jsonl")
    return {str(file.parent): file.read_bytes().count(b"\n") for file in files}


def wait_for(what: Callable[[], bool], process: ForkServerProcess | None = None) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert process is None or process.exitcode is None, "the study ended before"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def started(out: Path, log: Path, method: str) -> ForkServerProcess:
    """Start the study and wait until a method's run has new rounds."""

    def rounds() -> int:
        return sum(count for folder, count in rounds_by_folder(out).items() if method in Path(folder).name)

    before, process = rounds(), start(command(out, "--at-once", str(ARMS)), log)
    wait_for(lambda: rounds() > before, process)
    return process


def outcome(folder: Path) -> tuple[bytes, object, object]:
    """Return a run's last weights, and its metrics and curve without times."""
    content = (folder / "checkpoints" / f"round-{ROUNDS:06}.safetensors").read_bytes()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"]
    tensors = content[8 + int.from_bytes(content[:8], "little") :]  # after the header, which counts digits of seconds
    return tensors, rows, json.loads((folder / "summary.json").read_text())["curve"]


def test_stopped_in_every_way_it_goes_on(tmp_path: Path) -> None:
    out, log = tmp_path / "at-once" / "study", tmp_path / "log"

    process = started(out, log, "scalefl")  # kill -9 of the parent: its children save and end by themselves
    assert children(out)
    process.kill()
    process.join()
    wait_for(lambda: not children(out))
    assert 0 < next(count for folder, count in rounds_by_folder(out).items() if "scalefl" in folder) < ROUNDS

    process = started(out, log, "scalefl")  # kill -9 of a child: it is named, and the others go on
    victim, folder = next((pid, name) for pid, name in children(out).items() if "scalefl" in name)
    os.kill(victim, signal.SIGKILL)
    assert ended(process) == 1
    assert "error: ScaleFL, seed 0: its process was ended by SIGKILL; what it said is in" in log.read_text()
    assert {str(path.parent) for path in out.parent.glob("runs/*/summary.json")} == {*rounds_by_folder(out)} - {folder}

    process = started(out, log, "scalefl")  # a polite stop: all is saved, and it is said how to go on
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    assert ended(process) == 130
    assert not children(out)
    said = log.read_text()
    assert "Stopped in ScaleFL, seed 0 (after round " in said
    assert f"  fedfeast study serving-density --out {out} --dataset digits --rounds {ROUNDS} --set" in said

    said = run(command(out, "--at-once", "2"), tmp_path / "last.log")
    assert said.count("finished before") == ARMS - 1
    assert f"ScaleFL, seed 0 finished after round {ROUNDS}" in said
    assert "Traceback" not in said + log.read_text() + "".join(one.read_text() for one in out.glob("logs/*.log"))

    run(command(tmp_path / "sequence" / "study"), tmp_path / "sequence.log")
    for one in rounds_by_folder(out):
        assert outcome(Path(one)) == outcome(tmp_path / "sequence" / "runs" / Path(one).name)
