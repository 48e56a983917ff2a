from pathlib import Path

import pytest
from runs.conftest import write_grey

from fedfeast.errors import InvalidInput
from fedfeast.recipes.sections import DataSection
from fedfeast.runs.kept.data import KeptData


def write_own(data: Path, level: int) -> DataSection:
    """Write a data set of grey images of one level."""
    write_grey(data, level)
    return DataSection(name="mine", folder=str(data))


@pytest.fixture
def kept(tmp_path: Path) -> KeptData:
    return KeptData(tmp_path / "inputs" / "data.json")


def test_facts_are_kept(tmp_path: Path, kept: KeptData) -> None:
    section = write_own(tmp_path / "data", 1)
    assert kept.facts() is None
    kept.keep(section)
    assert kept.facts() == section.facts
    kept.forget()
    assert kept.facts() is None


def test_other_data_are_named_and_refused(tmp_path: Path, kept: KeptData) -> None:
    kept.keep(write_own(tmp_path / "data", 1))
    kept.refuse_other(write_own(tmp_path / "elsewhere", 1))
    other = write_own(tmp_path / "data", 2)
    kept.keep(other)  # what the run began with stays
    with pytest.raises(
        InvalidInput,
        match=r"'mine' have changed since the run in .* began \(test_images.npy, train_images.npy\): "
        "give another --out folder, or prepare the old data again",
    ):
        kept.refuse_other(other)


def test_an_official_set_is_noted_when_it_is_prepared(tmp_path: Path, kept: KeptData) -> None:
    section = DataSection(name="cifar100", folder=str(tmp_path))
    kept.keep(section)
    assert kept.facts() == section.facts
    (tmp_path / "mine").mkdir()
    write_own(tmp_path, 1)
    (tmp_path / "mine").rename(tmp_path / "cifar100")
    kept.refuse_other(section)
    kept.keep(section)
    write_own(tmp_path, 2)
    (tmp_path / "mine" / "dataset.json").replace(tmp_path / "cifar100" / "dataset.json")
    assert kept.changed_files(section) == ["test_images.npy", "train_images.npy"]


def test_embedded_data_need_nothing(tmp_path: Path, kept: KeptData) -> None:
    kept.keep(DataSection(name="digits"))
    assert not (tmp_path / "inputs").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"facts": {}, "arrays": {}}'])
def test_a_damaged_file_is_named(tmp_path: Path, kept: KeptData, content: str) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "data.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"data.json is damaged .*: delete it, and the next training"):
        kept.facts()
