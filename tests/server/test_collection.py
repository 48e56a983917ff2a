import time
from pathlib import Path
from shutil import copytree

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.server import collection
from fedfeast.server.collection import Collection


def test_runs_by_name(trained: Path, tmp_path: Path) -> None:
    copytree(trained, tmp_path / "digits")
    runs = Collection([trained, tmp_path / "digits"])
    assert list(runs.runs) == ["digits", "digits-2"]
    assert runs.find(None) is runs.find("digits")
    assert runs.find("other") is None
    variant = runs.runs["digits-2"].seen.variants[0]["id"]
    assert runs.offer_of(variant) is not None
    assert runs.offer_of("5-00000000") is None


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no run was given"):
        Collection([])
    with pytest.raises(InvalidInput, match="is no run folder"):
        Collection([tmp_path])


def test_it_looks_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "LOOK_EVERY_SECONDS", 0.01)
    with Collection([folder]) as runs:
        run = runs.runs["digits"]
        (folder / "summary.json").unlink()
        until = time.monotonic() + 5
        while run.seen.state != "unevaluated" and time.monotonic() < until:
            time.sleep(0.01)
        assert run.seen.state == "unevaluated"

        def fail() -> None:
            raise OSError("unreadable")

        monkeypatch.setattr(run, "refresh", fail)
        while "unreadable" not in run.seen.note and time.monotonic() < until:
            time.sleep(0.01)
        assert run.seen.note == "The run's folder cannot be read (unreadable)."
