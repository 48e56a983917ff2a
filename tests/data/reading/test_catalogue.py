from collections.abc import Callable
from pathlib import Path

import pytest

from fedfeast.data.reading.catalogue import EMBEDDED, OFFICIAL, OfficialDataset

Write = Callable[[str, Path], Path]


@pytest.mark.parametrize("name", OFFICIAL)
def test_descriptions_are_plausible(name: str) -> None:
    official = OFFICIAL[name]
    for count in official.facts.examples.values():
        assert count % official.facts.classes == 0 or official.facts.clients
    for archive in official.archives:
        assert archive.address.startswith("http")
        assert archive.address.endswith(f"/{archive.file}" if archive.md5 else ".zip")
        assert len(bytes.fromhex(archive.md5)) == (0 if official.facts.clients else 16)
    assert bool(official.facts.clients) == bool(official.licence) == bool(official.citation)
    if official.normalisation is not None:
        assert len(official.normalisation.mean) == len(official.normalisation.deviation) == official.facts.channels


def test_names_and_archives_are_told_apart() -> None:
    assert not EMBEDDED.keys() & OFFICIAL.keys()
    archives = [archive for official in OFFICIAL.values() for archive in official.archives if archive.md5]
    assert len({archive.file for archive in archives}) == len({archive.md5 for archive in archives}) == len(archives)


@pytest.mark.parametrize("name", OFFICIAL)
def test_files_are_found_wherever_they_may_lie(
    tmp_path: Path, name: str, small: dict[str, OfficialDataset], write_archive: Write, write_unpacked: Write
) -> None:
    official = small[name]
    assert official.find(tmp_path) is None
    packed = write_archive(name, tmp_path / "packed")
    assert official.find(tmp_path / "packed") == official.find(packed) == packed
    unpacked = write_unpacked(name, tmp_path / "unpacked")
    assert official.find(tmp_path / "unpacked") == official.find(unpacked) == unpacked
    if official.unpacked:
        write_archive(name, tmp_path / "unpacked")
        assert official.find(tmp_path / "unpacked") == unpacked


def test_a_stray_train_folder_is_no_cifar100(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    assert OFFICIAL["cifar100"].find(tmp_path) is None
