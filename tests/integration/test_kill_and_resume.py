"""kill -9 at random moments, then the same command: the final weights are those of an unbroken run, bit for bit."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfeast.randomness import named_generator

SETTINGS = {
    "training.rounds": 24,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 2,
    "engine.threads": 1,
}


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


def wait_for_first_round(out: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size:
            return
        time.sleep(0.01)
    pytest.fail("the run did not finish a first round")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    subprocess.run(command(out), check=True, capture_output=True, timeout=300)
    return out


def test_kill_9_at_random_moments(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    generator = named_generator(0, "kills")
    kills = 0
    for _ in range(4):
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_first_round(out, process)
        time.sleep(generator.uniform(0.0, 0.6))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2, "the run was too short to be killed"
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
    wait_for_first_round(out, process)  # type: ignore[arg-type]
    process.send_signal(polite)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "all of it is saved" in errors
    assert f"fedfeast train digits --out {out} --set training.rounds=24" in errors
    assert "Traceback" not in errors
    subprocess.run(command(out), check=True, capture_output=True, timeout=300)
    assert metrics(out) == metrics(unbroken)
    assert curve(out) == curve(unbroken)
