"""Files and folders that are written whole or not at all."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.whole_files import refuse_unknown_ending, sha256_of, whole_folder, write_json, write_text, write_whole


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def fail_half_way(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, fail_half_way)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_and_hash(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    write_json(path, {"a": 1})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "deep" / "out") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("content")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "inner" / "file").read_text() == "content"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def stopped() -> None:
        with whole_folder(tmp_path / "out") as folder:
            (folder / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_and_any_other_place_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    with whole_folder(tmp_path / "out") as folder:
        (folder / "file").touch()
    assert (tmp_path / "out" / "file").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with whole_folder(Path(".")) as folder:
        (folder / "file").touch()
    assert (tmp_path / "here" / "file").exists()
    for taken in (tmp_path / "out", tmp_path / "out" / "file"):
        with pytest.raises(InvalidInput, match="exists and is not an empty folder"), whole_folder(taken):
            pytest.fail("must not begin")


def test_a_folder_that_gives_way_is_replaced_and_kept_where_filling_fails(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with whole_folder(out) as folder:
        (folder / "first").touch()
    with pytest.raises(RuntimeError), whole_folder(out, lambda path: (path / "first").exists()):
        raise RuntimeError
    assert [file.name for file in out.iterdir()] == ["first"]
    with whole_folder(out, lambda path: (path / "first").exists()) as folder:
        (folder / "second").touch()
    assert [file.name for file in out.iterdir()] == ["second"]
    with pytest.raises(InvalidInput, match="something else than --force may"), whole_folder(out, lambda path: False):
        pytest.fail("must not begin")
    out.rename(tmp_path / ".out.former")  # a process was killed between its two steps
    with pytest.raises(InvalidInput, match="exists and is not an empty folder"), whole_folder(out):
        pass
    assert [file.name for file in out.iterdir()] == ["second"]


@pytest.mark.parametrize("name", ["models", "models-0.5", "models.v2", "models.2026", ".hidden", "here/.."])
def test_names_of_folders(name: str) -> None:
    refuse_unknown_ending(Path(name))
    with pytest.raises(InvalidInput, match=r"model.tflite ends in .tflite, which is not written: give a folder"):
        refuse_unknown_ending(Path("model.tflite"))


def test_a_killed_process_leaves_nothing_in_place_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from fedfeast.whole_files import whole_folder\n"
        f"with whole_folder(Path({str(tmp_path / 'out')!r})) as folder:\n"
        "    (folder / 'one').mkdir()\n"
        "    (folder / 'one' / 'file').write_text('half')\n"
        "    (folder / 'old').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    assert not (tmp_path / "out").exists()
    with whole_folder(tmp_path / "out") as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out") as folder:
        (folder / "file").touch()
        with pytest.raises(InvalidInput, match="another process is writing"), whole_folder(tmp_path / "out"):
            pytest.fail("must not begin")
    assert (tmp_path / "out" / "file").exists()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match=r"file/out cannot be written \(.*\): give another place"):
        whole_folder(tmp_path / "file" / "out").__enter__()
    assert (tmp_path / "file").read_text() == "mine"
