"""kill -9 at random moments, then the same command: the final weights are those of an unbroken run, bit for bit."""

import json
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from processes import ended, run, start
from tiny import TINY, as_words

from fedfeast.randomness import named_generator

SETTINGS = {
    **TINY,
    "training.rounds": 24,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 2,
    "server.average": 0.8,
}
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"server.lookahead": 0.5},
    "buffered": {"fleet.mode": "buffered", "fleet.buffer": 2, "simulation.speeds": "pareto"},
}
# What a checkpoint must hold of each.
MEMORIES = {"synchronous": (b"server.before", b"server.average"), "buffered": (b"work.clock", b"work.sent.")}
KILLS = 3


def command(out: Path, mode: str = "synchronous") -> list[str]:
    return ["train", "digits", "--out", str(out), *as_words({**SETTINGS, **MODES[mode]})]


def final_checkpoint(out: Path) -> bytes:
    return (out / "checkpoints" / "round-000024.safetensors").read_bytes()


def metrics(out: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def curve(out: Path) -> object:
    return json.loads((out / "summary.json").read_text())["curve"]


def finished_lines(out: Path) -> int:
    """Return the whole lines of metrics: a line being written has no end yet."""
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def newest_checkpoint(out: Path) -> int:
    """Return the round a start would go on from: the newest checkpoint that was finished with its hash."""
    rounds = [
        int(file.stem.removeprefix("round-"))
        for file in (out / "checkpoints").glob("round-*.safetensors")
        if file.with_name(f"{file.name}.sha256").is_file()
    ]
    return max(rounds, default=0)


def wait_for_lines(out: Path, process: ForkServerProcess, lines: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.exitcode is None:
        if finished_lines(out) >= lines:
            return
        time.sleep(0.005)
    pytest.fail(f"the run stopped or hung before line {lines} of its metrics, at {finished_lines(out)}")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    run(command(out), out.with_name("log"))
    return out


@pytest.mark.parametrize("mode", MODES)
def test_kill_9_at_random_moments(unbroken: Path, tmp_path: Path, mode: str) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    if mode != "synchronous":
        unbroken = tmp_path / "unbroken"
        run(command(unbroken, mode), log)
    generator = named_generator(0, "kills")
    resumed_from = [0]
    for _ in range(KILLS):
        # A round's line stands before its checkpoint: of three new lines, one of the first two is a saved round.
        wanted = finished_lines(out) + int(generator.integers(3, 6))
        process = start(command(out, mode), log)
        try:
            wait_for_lines(out, process, wanted)
            time.sleep(generator.uniform(0.0, 0.05))
        finally:
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL, "the run ended before it was killed"
        resumed_from.append(newest_checkpoint(out))
    assert resumed_from == sorted(set(resumed_from)), "every start trained on from a newer checkpoint"
    assert 0 < resumed_from[-1] < SETTINGS["training.rounds"], "the last start has both rounds to load and to train"
    run(command(out, mode), log)
    tensors, expected = final_checkpoint(out), final_checkpoint(unbroken)
    assert all(name in expected for name in MEMORIES[mode])
    header = 8 + int.from_bytes(expected[:8], "little")  # metrics_bytes in the header counts digits of seconds
    assert tensors[8 + int.from_bytes(tensors[:8], "little") :] == expected[header:]
    assert metrics(out) == metrics(unbroken)
    assert curve(out) == curve(unbroken)


@pytest.mark.parametrize("polite", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_saves_and_says_how_to_go_on(unbroken: Path, tmp_path: Path, polite: signal.Signals) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    process = start(command(out), log)
    wait_for_lines(out, process, 1)
    assert process.pid is not None
    os.kill(process.pid, polite)
    assert ended(process) == 130
    said = log.read_text()
    assert "all of it is saved" in said
    assert f"fedfeast train digits --out {out} --set network.stem_channels=16" in said
    assert "Traceback" not in said
    run(command(out), log)
    assert metrics(out) == metrics(unbroken)
    assert curve(out) == curve(unbroken)
