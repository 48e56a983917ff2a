from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfeast.data.datasets import (
    class_names_of,
    facts_of,
    is_here,
    is_known,
    list_data,
    load_dataset,
    prepared_names,
    published_normalisation,
)
from fedfeast.data.reading.catalogue import EMBEDDED, OFFICIAL, OfficialDataset
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.facts import DatasetFacts
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.data.reading.preparing import prepare_data
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]


def write_own(data: Path, name: str = "mine") -> None:
    labels = {"train": np.array([0, 1, 1]), "test": np.array([0, 1])}
    blocks = [(split, 0, np.ones((len(each), 1, 4, 4), np.uint8)) for split, each in labels.items()]
    write_prepared(data / name, Decoded(("a", "b"), 1, 4, labels, blocks), {"normalisation": None, "source": {}})


def test_digits_are_those_that_scikit_learn_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load_dataset("digits")
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    loaded = load_dataset("digits")
    for one, other in ((read.train, loaded.train), (read.test, loaded.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)


def test_digits() -> None:
    digits = load_dataset("digits")
    assert digits.train.inputs.shape[1:] == (1, 8, 8)
    assert len(digits.train) + len(digits.test) == 1797
    counts = np.bincount(digits.test.labels.numpy())
    assert len(counts) == digits.classes == 10
    assert counts.max() - counts.min() <= 2
    assert int(digits.train.inputs.max()) == 255


@pytest.mark.parametrize("name", EMBEDDED)
def test_declared_facts_are_true(name: str) -> None:
    dataset, facts = load_dataset(name), facts_of(name)
    assert dataset.train.inputs.shape == (facts.train_examples, facts.channels, facts.side, facts.side)
    assert len(dataset.test) == facts.test_examples
    assert dataset.classes == facts.classes


def test_synthetic_is_the_same_every_time() -> None:
    one, two = load_dataset("synthetic"), load_dataset("synthetic")
    assert len(one.train) == 60_000
    assert bool((one.train.inputs == two.train.inputs).all())


@pytest.mark.parametrize("name", [name for name, official in OFFICIAL.items() if not official.varies])
@pytest.mark.parametrize("place", ["", "NAME"])
def test_official_files_in_the_data_folder_are_prepared_on_first_use(
    tmp_path: Path, name: str, place: str, small: dict[str, OfficialDataset], write_archive: Write
) -> None:
    source = write_archive(name, tmp_path / place.replace("NAME", name))
    first = load_dataset(name, str(tmp_path), small)
    assert len(first.train) == small[name].facts.train_examples
    for file in source.iterdir() if source.is_dir() else [source]:
        if file.suffix in (".gz", ".zip"):
            file.unlink()
    again = load_dataset(name, str(tmp_path), small)
    assert bool((again.train.inputs == first.train.inputs).all())
    assert (again.clients is not None) == bool(small[name].facts.clients)


def test_the_unpacked_folder_of_cifar100_is_read_as_ever(
    tmp_path: Path, small: dict[str, OfficialDataset], write_unpacked: Write
) -> None:
    write_unpacked("cifar100", tmp_path)
    cifar = load_dataset("cifar100", str(tmp_path), small)
    assert cifar.train.inputs.shape == (20, 3, 32, 32)
    assert cifar.normalisation == OFFICIAL["cifar100"].normalisation


def test_a_data_folder_that_may_only_be_read_works_too(
    tmp_path: Path, small: dict[str, OfficialDataset], write_unpacked: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_unpacked("cifar100", tmp_path)

    def refuse(*words: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Root may write anywhere, so the refusal is played.
    monkeypatch.setattr("fedfeast.data.datasets.prepare_found", refuse)
    cifar = load_dataset("cifar100", str(tmp_path), small)
    assert int(cifar.train.inputs.sum()) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-100-python"]


def test_plays_are_counted_when_they_are_prepared(
    tmp_path: Path, small: dict[str, OfficialDataset], write_archive: Write
) -> None:
    write_archive("shakespeare", tmp_path)
    with pytest.raises(InvalidInput, match="run fedfeast data prepare shakespeare first"):
        load_dataset("shakespeare", str(tmp_path))
    assert facts_of("shakespeare", str(tmp_path)).clients == 1027
    prepare_data("shakespeare", None, tmp_path)
    assert facts_of("shakespeare", str(tmp_path)) == small["shakespeare"].facts
    clients = load_dataset("shakespeare", str(tmp_path)).clients
    assert clients is not None
    assert len(clients.names) == 3


def test_files_of_one_set_serve_two_names(
    tmp_path: Path, small: dict[str, OfficialDataset], write_archive: Write
) -> None:
    write_archive("motionsense", tmp_path / "motionsense")
    for name, channels in (("motionsense", 6), ("motionsense-12", 12)):
        load_dataset(name, str(tmp_path), small)
        assert (tmp_path / name / "train_inputs.npy").stat().st_size == 128 + 10 * channels * 128 * 2


def test_an_official_name_holds_the_official_data(tmp_path: Path) -> None:
    write_own(tmp_path, "cifar100")
    with pytest.raises(
        InvalidInput, match=r"cifar100 holds DatasetFacts\(classes=2, .* instead of DatasetFacts\(classes=100"
    ):
        load_dataset("cifar100", str(tmp_path))


def test_missing_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput,
        match=rf"files of cifar100 are not in {tmp_path}: run fedfeast data fetch cifar100, or download "
        rf"https://\S+ and put cifar-100-python.tar.gz into {tmp_path}/cifar100 and run",
    ):
        load_dataset("cifar100", str(tmp_path))


def test_facts_come_from_the_catalogue_or_the_prepared_folder(tmp_path: Path) -> None:
    write_own(tmp_path)
    assert facts_of("tinyimagenet").side == 64
    assert facts_of("mine", str(tmp_path)) == DatasetFacts(2, 1, 4, 3, 2)
    assert len(load_dataset("mine", str(tmp_path)).train) == 3
    assert prepared_names(tmp_path) == ("mine",)
    assert (len(class_names_of("mine", str(tmp_path))), class_names_of("digits")) == (2, ())
    with pytest.raises(
        InvalidInput, match=r"data.name = 'min' is no data set: choose one of digits, .*cifar10, .*mine"
    ):
        facts_of("min", str(tmp_path))
    (tmp_path / "mine" / "dataset.json").unlink()
    with pytest.raises(InvalidInput, match=r"mine holds no dataset.json: prepare it again"):
        load_dataset("mine", str(tmp_path))


def test_the_list_tells_what_is_here_and_what_is_needed(
    tmp_path: Path, write_archive: Write, write_unpacked: Write
) -> None:
    write_own(tmp_path)
    write_own(tmp_path, "hurt")
    (tmp_path / "hurt" / "test_labels.npy").unlink()
    write_archive("cinic10", tmp_path)
    write_unpacked("cifar10", tmp_path)
    rows = {row["name"]: row for row in list_data(tmp_path)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "digits": "embedded",
        "synthetic": "embedded",
        "cifar10": "unpacked files found",
        "cifar100": "absent",
        "cinic10": "archive found",
        "tinyimagenet": "absent",
        "fashion-mnist": "absent",
        "audiomnist": "absent",
        "motionsense": "absent",
        "motionsense-12": "absent",
        "shakespeare": "absent",
        "hurt": "damaged",
        "mine": "prepared",
    }
    assert rows["mine"]["train_examples"] == 3
    assert "fedfeast data fetch tinyimagenet" in rows["tinyimagenet"]["needs"]
    assert "test_labels.npy is missing" in rows["hurt"]["needs"]
    assert rows["digits"]["needs"] == rows["mine"]["needs"] == "nothing"


def test_the_list_names_the_missing_ones_of_several_files(tmp_path: Path, write_archive: Write) -> None:
    place = write_archive("fashion-mnist", tmp_path / "fashion-mnist")
    kept = "train-images-idx3-ubyte.gz"
    for file in place.iterdir():
        if file.name != kept:
            file.unlink()
    (row,) = (row for row in list_data(tmp_path) if row["name"] == "fashion-mnist")
    assert row["state"] == "incomplete"
    for name in ("train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        assert f"{name} and put {name} into {place}" in row["needs"]
    assert kept not in row["needs"]


def test_what_is_known_and_what_is_here(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for name, known, here in (("digits", True, True), ("cifar10", True, False), ("mine", False, False)):
        assert (is_known(name, folder), is_here(name, folder)) == (known, here)
    write_own(tmp_path)
    assert is_known("mine", folder)
    assert is_here("mine", folder)
    assert published_normalisation("cifar10") == OFFICIAL["cifar10"].normalisation
    assert published_normalisation("fashion-mnist") is published_normalisation("mine") is None
