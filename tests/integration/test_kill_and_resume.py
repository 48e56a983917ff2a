"""kill -9 at random moments, then the same command: the final weights are those of an unbroken run, bit for bit."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedfeast.randomness import named_generator

SETTINGS = {
    "training.rounds": 24,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 2,
    "engine.threads": 1,
}
KILLS = 3


def command(out: Path) -> list[str]:
    words = [
        sys.executable,
        "-c",
        "from fedfeast.app.cli import main; main()",
        "train",
        "digits",
        "--out",
        str(out),
    ]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    return words


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


def wait_for_lines(out: Path, process: subprocess.Popen[Any], lines: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if finished_lines(out) >= lines:
            return
        time.sleep(0.005)
    pytest.fail(f"the run stopped or hung before line {lines} of its metrics, at {finished_lines(out)}")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    subprocess.run(command(out), check=True, capture_output=True, timeout=300)
    return out


def test_kill_9_at_random_moments(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    generator = named_generator(0, "kills")
    resumed_from = [0]
    for _ in range(KILLS):
        # A round's line stands before its checkpoint: of three new lines, one of the first two is a saved round.
        wanted = finished_lines(out) + int(generator.integers(3, 6))
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_lines(out, process, wanted)
            time.sleep(generator.uniform(0.0, 0.15))
        finally:
            process.kill()
            process.wait()
        assert process.returncode == -signal.SIGKILL, "the run ended before it was killed"
        resumed_from.append(newest_checkpoint(out))
    assert resumed_from == sorted(set(resumed_from)), "every start trained on from a newer checkpoint"
    assert 0 < resumed_from[-1] < SETTINGS["training.rounds"], "the last start has both rounds to load and to train"
    done = subprocess.run(command(out), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tensors, expected = final_checkpoint(out), final_checkpoint(unbroken)
    header = 8 + int.from_bytes(expected[:8], "little")  # metrics_bytes in the header counts digits of seconds
    assert tensors[8 + int.from_bytes(tensors[:8], "little") :] == expected[header:]
    assert metrics(out) == metrics(unbroken)
    assert curve(out) == curve(unbroken)


@pytest.mark.parametrize("polite", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_saves_and_says_how_to_go_on(unbroken: Path, tmp_path: Path, polite: signal.Signals) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_lines(out, process, 1)
    process.send_signal(polite)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "all of it is saved" in errors
    assert f"fedfeast train digits --out {out} --set training.rounds=24" in errors
    assert "Traceback" not in errors
    subprocess.run(command(out), check=True, capture_output=True, timeout=300)
    assert metrics(out) == metrics(unbroken)
    assert curve(out) == curve(unbroken)
