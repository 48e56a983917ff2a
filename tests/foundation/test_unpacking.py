import gzip
from pathlib import Path

import pytest

from fedfeast import unpacking
from fedfeast.errors import InvalidInput
from fedfeast.unpacking import gunzip, refuse_bomb


def test_what_is_within_its_bounds_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    assert gunzip(tmp_path / "a.gz") == b"onetwo"


def test_a_bomb_ends_where_its_bound_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 3 << 20)
    (tmp_path / "a.gz").write_bytes(4 * gzip.compress(bytes(1 << 20)))
    with pytest.raises(InvalidInput, match=r"a.gz has \d+ bytes and unpacks to 4194304 or more, which no data explain"):
        gunzip(tmp_path / "a.gz")


def test_large_files_may_unpack_to_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 10)
    (tmp_path / "a").write_bytes(bytes(1000))
    refuse_bomb(tmp_path / "a", 100_000)
    with pytest.raises(InvalidInput, match="unpacks to 100001 or more"):
        refuse_bomb(tmp_path / "a", 100_001)
