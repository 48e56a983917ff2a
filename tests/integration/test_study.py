"""A study in a process of its own, killed in its second run: the same command finishes it and reuses the first."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

WORDS = ["table2-training-rules", "--dataset", "digits", "--rounds", "3", "--json"]
SETTINGS = ["training.clients_per_round=2", "evaluation.every_rounds=1", "checkpoint.every_rounds=1"]


def start(out: Path) -> "subprocess.Popen[str]":
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "fedfeast", "study", *WORDS, "--out", str(out), *settings]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_kill_and_go_on(tmp_path: Path) -> None:
    runs, process = tmp_path / "runs", start(tmp_path / "study")
    deadline = time.monotonic() + 60
    while len(list(runs.glob("*/metrics.jsonl"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    first = next(runs.glob("digits-feast-rule-global-min-*/summary.json"))
    written = first.stat().st_mtime_ns
    done = start(tmp_path / "study")
    printed, said = done.communicate(timeout=120)
    assert done.returncode == 0, said
    assert "run 1 of 5  Global min. only, seed 0, finished before" in said
    assert first.stat().st_mtime_ns == written
    content = json.loads(printed)
    assert len(content["tables"][0]["rows"]) == 5
    assert Path(content["report"]).is_file()
    assert len(list(runs.glob("*/summary.json"))) == 5
