import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfeast.data import ImageOptions
from fedfeast.data.reading.catalogue import OFFICIAL, OfficialDataset
from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.prepared import open_prepared
from fedfeast.data.reading.preparing import (
    DATA_FOLDER_VARIABLE,
    data_folder,
    find_official,
    list_photos,
    prepare_data,
    prepare_found,
)
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for level, name in enumerate(("cats", "dogs")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8), (level, number, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_data_sets_from_a_given_place(
    tmp_path: Path, name: str, small: dict[str, OfficialDataset], write_archive: Write
) -> None:
    source = write_archive(name, tmp_path / "downloads")
    content = prepare_data(name, source, tmp_path / "data", official=small)
    dataset = open_prepared(tmp_path / "data" / name)
    assert content["examples"] == small[name].facts.examples
    assert dataset.classes == small[name].facts.classes
    assert dataset.normalisation == OFFICIAL[name].normalisation
    assert (dataset.server is not None) == (name == "cinic10")
    stated = json.loads((tmp_path / "data" / name / "dataset.json").read_text())
    assert stated["source"] == {"official": str(source)}
    assert ("licence" in stated) == ("citation" in stated) == bool(small[name].facts.clients)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [name]


def test_own_images(tmp_path: Path, photos: Path) -> None:
    content = prepare_data("pets", photos, tmp_path / "data", PrepareOptions(test_share=0.4))
    assert content["examples"] == {"train": 6, "test": 4}
    stated = {"images": str(photos), "size": None, "seed": 0, "test_share": 0.4, "listing": list_photos(photos)}
    assert content["source"] == stated
    dataset = open_prepared(tmp_path / "data" / "pets")
    assert np.array_equal(dataset.test.inputs[:, 0, 0, 0], dataset.test.labels)
    assert dataset.normalisation is None


def test_own_files_with_clients(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", inputs=np.ones((10, 3)), labels=np.arange(10) % 2, who=np.arange(10) // 5)
    content = prepare_data("mine", tmp_path / "mine.npz", tmp_path / "data", PrepareOptions(clients="who"))
    assert content["client_names"] == ("0", "1")
    assert content["source"] == {
        "file": str(tmp_path / "mine.npz"),
        "seed": 0,
        "test_share": 0.2,
        "clients": "who",
    }
    clients = open_prepared(tmp_path / "data" / "mine").clients
    assert clients is not None
    assert clients.test.tolist() == [0, 1]


def test_roles_in_folders_are_taken_where_a_user_names_them(tmp_path: Path, small: dict[str, OfficialDataset]) -> None:
    for role in ("HAMLET", "OPHELIA"):
        (tmp_path / "plays" / "Hamlet").mkdir(parents=True, exist_ok=True)
        (tmp_path / "plays" / "Hamlet" / f"{role}.txt").write_text("My lord, I have remembrances of yours\n" * 8)
    assert find_official("shakespeare", small["shakespeare"], tmp_path / "plays") is None
    content = prepare_data("shakespeare", tmp_path / "plays", tmp_path / "data", official=small)
    assert content["client_names"] == ("Hamlet/HAMLET", "Hamlet/OPHELIA")


def test_what_is_prepared_is_replaced_on_demand_only(tmp_path: Path, photos: Path) -> None:
    prepare_data("pets", photos, tmp_path / "data")
    with pytest.raises(InvalidInput, match=r"pets is already prepared: choose another name, or say --replace"):
        prepare_data("pets", photos, tmp_path / "data")
    content = prepare_data("pets", photos, tmp_path / "data", ImageOptions(size=16), replace=True)
    assert content["side"] == open_prepared(tmp_path / "data" / "pets").train.shape[1] == 16


def test_a_failed_replacement_keeps_what_was_there(tmp_path: Path, photos: Path) -> None:
    prepare_data("pets", photos, tmp_path / "data")
    for photo in (photos / "cats").iterdir():
        Image.open(photo).save(photo, "JPEG")
        photo.write_bytes(photo.read_bytes()[:-5])  # found while the others are written already
    with pytest.raises(InvalidInput, match=r"cats holds no image that can be read \(0.png is damaged\)"):
        prepare_data("pets", photos, tmp_path / "data", replace=True)
    assert len(open_prepared(tmp_path / "data" / "pets").train) == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits", "digits is embedded"),
        ("CIFAR-10", "looks like the known data set cifar10"),
        ("fashion_mnist", "looks like the known data set fashion-mnist"),
        ("cifar100", "cifar100 is the name of an official data set, and .*photos holds no cifar-100-python.tar.gz or"),
        ("../pets", "is no name for a data set"),
        ("", "is no name for a data set"),
        ("a" * 65, "is no name for a data set"),
    ],
)
def test_names_that_clash_or_mislead_are_refused(tmp_path: Path, photos: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepare_data(name, photos, tmp_path / "data")


def test_missing_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'pets' is no official data set \(cifar10, .*: .* with --from PATH"):
        prepare_data("pets", None, tmp_path)
    with pytest.raises(
        InvalidInput,
        match=rf"files of cinic10 are not in {tmp_path}: run fedfeast data fetch cinic10, or download "
        rf"https://\S+ and put CINIC-10.tar.gz into {tmp_path}/cinic10 and run",
    ):
        prepare_data("cinic10", None, tmp_path)
    with pytest.raises(InvalidInput, match="leave out --size"):
        prepare_data("cinic10", None, tmp_path, PrepareOptions(size=32))


def test_an_incomplete_official_set_is_refused(tmp_path: Path, write_archive: Write) -> None:
    source = write_archive("cifar100", tmp_path / "downloads")
    with pytest.raises(InvalidInput, match=r"holds 20 train examples of cifar100 instead of 50000: it is incomplete"):
        prepare_data("cifar100", source, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_cut_archive_leaves_nothing(tmp_path: Path, small: dict[str, OfficialDataset], write_archive: Write) -> None:
    source = write_archive("cinic10", tmp_path / "downloads")
    source.write_bytes(source.read_bytes()[:-2000])
    with pytest.raises(InvalidInput, match=r"CINIC-10.tar.gz is damaged or incomplete"):
        prepare_data("cinic10", source, tmp_path / "data", official=small)
    assert list((tmp_path / "data").iterdir()) == []


def test_two_processes_prepare_once(tmp_path: Path, small: dict[str, OfficialDataset], write_archive: Write) -> None:
    write_archive("tinyimagenet", tmp_path / "tinyimagenet")
    assert find_official("tinyimagenet", small["tinyimagenet"], tmp_path) is not None
    context = multiprocessing.get_context("spawn")
    arguments = ("tinyimagenet", small["tinyimagenet"], tmp_path)
    processes = [context.Process(target=prepare_found, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(open_prepared(tmp_path / "tinyimagenet").train) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["tinyimagenet"]


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path, photos: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(InvalidInput, match=rf"{folder} is not a folder"):
            prepare_data("pets", photos, folder)


def test_where_data_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_FOLDER_VARIABLE, "/from/environment")
    assert data_folder("/given") == Path("/given")
    assert data_folder(None) == Path("/from/environment")
    monkeypatch.delenv(DATA_FOLDER_VARIABLE)
    assert data_folder(None) == Path.home() / ".fedfeast" / "data"
