import hashlib
from pathlib import Path

import pytest

from fedfeast.whole_files import sha256_of, write_json, write_text, write_whole


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
