"""A study in a process of its own, killed in its second run: the same command finishes it and reuses the first."""

import json
import time
from pathlib import Path

from processes import run, start
from tiny import TINY, as_words

WORDS = ["study", "table2-training-rules", "--dataset", "digits", "--rounds", "3", "--json"]
SETTINGS = {
    **TINY,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 1,
    "checkpoint.every_rounds": 1,
}


def test_kill_and_go_on(tmp_path: Path) -> None:
    words = [*WORDS, "--out", str(tmp_path / "study"), *as_words(SETTINGS)]
    runs, process = tmp_path / "runs", start(words, tmp_path / "killed.log")
    deadline = time.monotonic() + 60
    while len(list(runs.glob("*/metrics.jsonl"))) < 2:
        assert process.exitcode is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    first = next(runs.glob("digits-feast-rule-global-min-*/summary.json"))
    written = first.stat().st_mtime_ns
    said = run(words, tmp_path / "log")
    assert "run 1 of 5  Global min. only, seed 0, finished before" in said
    assert first.stat().st_mtime_ns == written
    content, _ = json.JSONDecoder().raw_decode(said[said.index("{\n") :])
    assert len(content["tables"][0]["rows"]) == 5
    assert Path(content["report"]).is_file()
    assert len(list(runs.glob("*/summary.json"))) == 5
