from pathlib import Path
from shutil import copytree

import pytest
from PIL import Image

from fedfeast.data import PreparedPhotos, prepare_photos
from fedfeast.data.reading.prepared import open_prepared


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of two classes, four photos each."""
    for level, name in ((10, "cats"), (200, "dogs")):
        (tmp_path / "My photos!" / name).mkdir(parents=True)
        for number in range(4):
            colour = (level, number, 0)
            Image.new("RGB", (60, 40), colour).save(tmp_path / "My photos!" / name / f"{number}.jpg")
    return tmp_path / "My photos!"


def test_the_same_files_are_prepared_once(photos: Path, tmp_path: Path) -> None:
    first = prepare_photos(photos, tmp_path / "data")
    assert first.name == "My-photos"
    assert first.description is not None
    assert len(open_prepared(tmp_path / "data" / first.name).train) == 6
    assert prepare_photos(photos, tmp_path / "data").description is None
    copied = Path(copytree(photos, tmp_path / "copy" / photos.name))  # with times of its own
    assert prepare_photos(copied, tmp_path / "data") == PreparedPhotos("My-photos")


def test_other_files_get_another_name_and_leave_the_first_alone(photos: Path, tmp_path: Path) -> None:
    prepare_photos(photos, tmp_path / "data")
    Image.new("RGB", (60, 40)).save(photos / "cats" / "one more.jpg")
    second = prepare_photos(photos, tmp_path / "data")
    assert second.name.startswith("My-photos-")
    assert len(open_prepared(tmp_path / "data" / "My-photos").train) == 6
    assert len(open_prepared(tmp_path / "data" / second.name).train) == 7
    assert prepare_photos(photos, tmp_path / "data") == PreparedPhotos(second.name)


def test_a_known_data_sets_name_is_avoided(photos: Path, tmp_path: Path) -> None:
    assert prepare_photos(photos.rename(tmp_path / "CIFAR-10"), tmp_path / "data").name == "CIFAR-10-photos"
