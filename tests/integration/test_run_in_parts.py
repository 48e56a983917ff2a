"""A run that is stopped, packed, unpacked elsewhere and trained on ends as one that never moved, bit for bit."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import packed_weights
import pytest
import run_in_parts
import torch
from safetensors.numpy import load_file
from tiny import TINY, as_settings, as_words

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator
from fedfeast.runs import Interrupted
from fedfeast.runs.checkpoint import Best
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.training import Silent

ROUNDS, STOPPED = 9, 5
SETTINGS: dict[str, Any] = {
    **TINY,
    "training.rounds": ROUNDS,
    "training.clients_per_round": 4,
    "training.momentum": 0.9,
    "training.last_batch": "short",
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 3,
    "engine.device": "cpu",
}
# One with nothing but weights, one whose method counts roles, one that remembers norms of answers, one in float64, and
# two whose servers have vectors of their own.
KINDS: dict[str, dict[str, Any]] = {
    "feast": {},
    "superfednas": {"method.name": "superfednas"},
    "norms": {"aggregation.rule": "clipped-mean"},
    "float64": {"engine.precision": "float64"},
    "lookahead": {"server.lookahead": 0.8, "server.average": 0.9},
    "adam": {"server.optimiser": "adam"},
}


class StopAt(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == STOPPED:
            raise KeyboardInterrupt


def stopped_run(out: Path, kind: str = "feast") -> Path:
    with pytest.raises(Interrupted):
        fedfeast.Run.create("digits", out, {**SETTINGS, **KINDS[kind]}).train(StopAt())
    return out


def metrics(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def tensors(out: Path, pattern: str) -> dict[str, bytes]:
    (file,) = out.glob(f"checkpoints/{pattern}.safetensors")
    return {name: one.tobytes() for name, one in load_file(file).items()}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped_run(tmp_path_factory.mktemp("stopped") / "run")


@pytest.fixture(scope="module")
def packed(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "parts"
    run_in_parts.pack(stopped, out)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_moved_run_ends_as_one_that_stayed(kind: str, tmp_path: Path) -> None:
    stayed = fedfeast.Run.create("digits", tmp_path / "stayed", {**SETTINGS, **KINDS[kind]}).train()
    first = stopped_run(tmp_path / "first", kind)
    assert tensors(first, f"round-{STOPPED:06d}")["weights"] != tensors(first, "best-*")["weights"]
    run_in_parts.pack(first, tmp_path / "parts")
    shutil.rmtree(first)
    run_in_parts.unpack([tmp_path / "parts"], tmp_path / "second")
    assert len(list((tmp_path / "second" / "checkpoints").iterdir())) == 4, "the latest and the best, with hashes"
    moved = fedfeast.Run.create("digits", tmp_path / "second", {**SETTINGS, **KINDS[kind]}).train()
    last = f"round-{ROUNDS:06d}"
    ends = [tensors(run.folder.path, last) for run in (stayed, moved)]
    assert ends[0] == ends[1]
    if kind == "superfednas":
        assert any(name.startswith("state.") for name in ends[0])
    if kind == "norms":
        assert "norms" in ends[0]
    if kind in ("lookahead", "adam"):
        of_server = {name for name in ends[0] if name.startswith("server.")}
        assert len(of_server) == 3
    assert moved.best().finished_rounds == stayed.best().finished_rounds
    assert moved.best().flat.equal(stayed.best().flat)
    assert metrics(moved.folder.path) == metrics(stayed.folder.path)
    assert moved.curve == stayed.curve


def test_every_file_of_a_run_comes_back(stopped: Path, packed: Path, tmp_path: Path) -> None:
    run_in_parts.unpack([packed], tmp_path / "run")
    found = {path.relative_to(tmp_path / "run"): path.read_bytes() for path in (tmp_path / "run").rglob("*.*")}
    assert found == {path: (stopped / path).read_bytes() for path in found}
    left = {path.relative_to(stopped) for path in stopped.rglob("*.*")} - set(found)
    assert {path.name.partition(".")[0] for path in left} == {"", "round-000003"}, "an older checkpoint and the lock"


def test_parts_are_packed_one_by_one(
    stopped: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(path.stat().st_size for path in packed.glob("piece-*")) // 9 + 1
    monkeypatch.setattr(run_in_parts, "PIECE_BYTES", size)
    parts = [tmp_path / f"part-{number}" for number in (1, 2, 3)]
    with pytest.raises(InvalidInput, match="--part 1/2: this run takes 3 parts of at most 64 MiB"):
        run_in_parts.pack(stopped, parts[0], "1/2")
    for number, out in enumerate(parts, start=1):
        told = run_in_parts.pack(stopped, out, f"{number}/3")
        assert told.startswith(f"packed round {STOPPED}, part {number} of 3: 3 of 9 pieces")
        assert max(path.stat().st_size for path in out.glob("piece-*")) <= size
    with pytest.raises(InvalidInput, match="fetch the other parts too"):
        run_in_parts.unpack(parts[:-1], tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_in_parts.unpack(parts[::-1], tmp_path / "run")
    assert tensors(tmp_path / "run", "best-*") == tensors(stopped, "best-*")


def test_damaged_and_foreign_packs_are_refused(packed: Path, stopped: Path, tmp_path: Path) -> None:
    cut, foreign, stranger = (tmp_path / name for name in ("cut", "foreign", "stranger"))
    shutil.copytree(packed, cut)
    piece = cut / "piece-001.bin"
    piece.write_bytes(piece.read_bytes()[:-1])
    shutil.copytree(packed, foreign)
    manifest = json.loads((packed / "parts.json").read_text())
    (foreign / "parts.json").write_text(json.dumps({**manifest, "drawn_weights": "0" * 64}))
    shutil.copytree(packed, stranger)
    manifest["files"][0]["path"] = "../outside.csv"
    (stranger / "parts.json").write_text(json.dumps(manifest))
    for folders, sentence in (
        ([cut], "piece-001.bin is damaged"),
        ([foreign], "draws other initial weights"),
        ([packed, foreign], "are not parts of the same pack"),
        ([stranger], "is no packed run"),
        ([stopped], "is no packed run"),
        ([tmp_path / "nowhere"], "is no packed run"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            run_in_parts.unpack(folders, tmp_path / "run")
        assert {path.name for path in tmp_path.iterdir()} == {"cut", "foreign", "stranger"}


def test_nothing_is_written_over(
    packed: Path, stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (stopped / "metrics.jsonl").read_bytes()
    for words in (["unpack", str(packed), str(stopped)], ["pack", str(stopped), str(packed)]):
        with pytest.raises(SystemExit) as stop:
            run_in_parts.main(words)
        assert stop.value.code == 2
        assert "exists and is not an empty folder" in capsys.readouterr().err
    assert (stopped / "metrics.jsonl").read_bytes() == before
    with pytest.raises(InvalidInput, match="--part 3/2: write it as"):
        run_in_parts.pack(stopped, tmp_path / "parts", "3/2")
    fedfeast.Run.create("digits", tmp_path / "new", SETTINGS)
    with pytest.raises(InvalidInput, match="has no checkpoint yet"):
        run_in_parts.pack(tmp_path / "new", tmp_path / "parts")


def test_training_stops_in_time_after_a_validated_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["train", "digits", "--out", str(out), "--minutes", "1e-6", *as_words(SETTINGS)]
    for ending in (
        f"round 4 of {ROUNDS}, .* s a round over 4 rounds, validation 0.* at 4, .* s: saved, go on",
        f"round 8 of {ROUNDS}, .* s a round over 4 rounds, validation 0.* at 8, .* s: saved, go on",
        f"round {ROUNDS} of {ROUNDS}, .* a round over 1 rounds, validation 0.* at {ROUNDS}, .*: saved, go on",
        f"round {ROUNDS} of {ROUNDS}, no round, validation .*: finished, test population score 0",
    ):
        run_in_parts.main(words)
        said = capsys.readouterr().out
        assert said.count("\n") == 1, "one line"
        assert re.search(ending, said), said
        if "round 4" in ending:  # the best weights are the latest
            assert "all: 1 of 1 pieces" in run_in_parts.pack(out, tmp_path / "parts")
            files = json.loads((tmp_path / "parts" / "parts.json").read_text())["files"]
            latest, best = (one["length"] for one in files if one["origin"] is not None)
            assert best < 1_000 < latest
    assert (out / "summary.json").is_file()
    with pytest.raises(InvalidInput, match="--minutes 0: give a time above 0"):
        run_in_parts.train("digits", out, 0, as_settings(SETTINGS))


def test_a_served_average_travels_once(tmp_path: Path) -> None:
    stopped_run(tmp_path / "run", "lookahead")
    checkpoints = RunFolder.open(tmp_path / "run").checkpoints
    state, _ = checkpoints.load_latest()
    assert state is not None
    best = Best(STOPPED, 1.0, state.server_state["average"], "average")
    assert not torch.equal(best.flat, state.flat)
    checkpoints.save(replace(state, best=best))
    run_in_parts.pack(tmp_path / "run", tmp_path / "parts")
    files = json.loads((tmp_path / "parts" / "parts.json").read_text())["files"]
    (one,) = (one for one in files if one["path"].startswith("checkpoints/best-") and one["origin"] is not None)
    assert one["origin"] == f"checkpoints/round-{STOPPED:06d}.safetensors#server.average"
    assert one["length"] < 1_000
    run_in_parts.unpack([tmp_path / "parts"], tmp_path / "again")
    again = fedfeast.Run.open(tmp_path / "again").best()
    assert torch.equal(again.flat, best.flat)
    assert again.vector == "average"


def test_weights_that_only_decay_take_a_byte_and_all_bits_return() -> None:
    generator = named_generator(0, "packed")
    origin = generator.uniform(-0.1, 0.1, 200_000).astype(np.float32)
    values = origin.copy()
    for factor in 1 - 1e-4 * generator.random(50):
        values[:150_000] = (values[:150_000] * factor).astype(np.float32)
    values[:20_000] += generator.normal(0, 0.1, 20_000).astype(np.float32)
    values[:4] = np.inf, np.nan, -0.0, 1e-42
    packed = packed_weights.encode(values, origin)
    assert packed_weights.decode(packed, origin).tobytes() == values.tobytes()
    assert len(packed) < 20_000 * 4 + 130_000  # of 800,000
    assert len(packed_weights.encode(values, values)) < 1_000
    with pytest.raises(ValueError, match="another network"):
        packed_weights.decode(packed, origin[:-1])
