from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedfeast.data.reading.natural.motionsense import CHANNELS, read_motionsense, read_motionsense_whole
from fedfeast.data.reading.prepared import open_prepared, write_prepared
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]
TRIALS = ("dws_1", "sit_5", "dws_11", "sit_13")


@pytest.fixture
def folder(tmp_path: Path, write_unpacked: Write) -> Path:
    return write_unpacked("motionsense", tmp_path)


def columns_of(path: Path) -> np.ndarray:
    """Return the twelve channels of a file in their steps, (channels, moments)."""
    values = np.genfromtxt(path, delimiter=",", skip_header=1)[:, 1:]
    return np.round(values * list(CHANNELS.values())).T


def test_windows_never_cross_a_trial(folder: Path) -> None:
    decoded = read_motionsense(folder)
    (_, _, train), (_, _, test) = decoded.inputs
    assert train.shape == (10, 6, 128)
    assert train.dtype == np.int16
    # 200 and 256 moments give 2 and 3 windows; 192 give 2, and 127 none.
    assert decoded.labels["train"].tolist() == [0, 0, 2, 2, 2] * 2
    assert decoded.labels["test"].tolist() == [0, 0] * 2
    assert decoded.clients["train"].tolist() == [0] * 5 + [1] * 5
    assert decoded.client_names == ("person_01", "person_02")
    whole = columns_of(folder / "sit_5" / "sub_2.csv")
    assert np.array_equal(train[-1], whole[6:, 128:256])
    assert np.array_equal(test[-1], columns_of(folder / "dws_11" / "sub_2.csv")[6:, 64:192])


def test_all_twelve_channels_on_demand(folder: Path, tmp_path: Path) -> None:
    decoded = read_motionsense_whole(folder)
    (_, _, train), _ = decoded.inputs
    assert np.array_equal(train[0], columns_of(folder / "dws_1" / "sub_1.csv")[:, :128])
    write_prepared(tmp_path / "kept", decoded, {"normalisation": None})
    dataset = open_prepared(tmp_path / "kept")
    assert decoded.facts.input_shape == (12, 128)
    assert dataset.clients is not None
    assert dataset.clients.test.tolist() == [0, 0, 1, 1]


def test_the_doubled_recording_is_left_out(folder: Path) -> None:
    for person in (1, 2):
        content = (folder / "sit_5" / f"sub_{person}.csv").read_bytes()
        (folder / "sit_13" / f"sub_{person}.csv").write_bytes(content)
    decoded = read_motionsense(folder)
    assert decoded.labels["test"].tolist() == [0, 0, 0, 0, 2, 2, 2]
    assert decoded.clients["test"].tolist() == [0, 0, 1, 1, 1, 1, 1]


def test_ready_made_arrays_give_the_same(folder: Path, tmp_path: Path) -> None:
    trials = [(person, name) for person in (2, 1) for name in TRIALS]  # in any order
    samples = [columns_of(folder / name / f"sub_{person}.csv").astype(np.int16) for person, name in trials]
    np.savez_compressed(
        tmp_path / "motionsense.npz",
        data=np.concatenate(samples, axis=1),
        offsets=np.cumsum([0, *(one.shape[1] for one in samples)]),
        subject=np.array([person for person, _ in trials], np.uint8),
        activity=np.array([0 if name.startswith("dws") else 2 for _, name in trials], np.uint8),
        trial=np.array([int(name[4:]) for _, name in trials], np.uint8),
        activities=np.array(["dws", "jog", "sit", "std", "ups", "wlk"]),
    )
    one, two = read_motionsense(folder), read_motionsense(tmp_path / "motionsense.npz")
    assert one.facts == two.facts
    for (_, _, first), (_, _, second) in zip(one.inputs, two.inputs, strict=True):
        assert np.array_equal(first, second)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    path = folder / "dws_1" / "sub_1.csv"
    content = path.read_text()
    for broken, sentence in (
        (content.replace("gravity.y", "gravity"), r"dws_1/sub_1.csv has no column gravity.y"),
        (content.replace("\n7,", "\n7,x", 1), r"dws_1/sub_1.csv is damaged"),
        (content + "9" + ",1e9" * 12 + "\n", r"values that no phone measures"),
        (content + "9" + ",nan" * 12 + "\n", r"values that no phone measures"),
    ):
        path.write_text(broken)
        with pytest.raises(InvalidInput, match=sentence):
            read_motionsense(folder)
    with pytest.raises(InvalidInput, match=r"holds no trials such as dws_1/sub_1.csv"):
        read_motionsense(tmp_path / "A_DeviceMotion_data" / "sit_13")
    path.write_text(content)
    for trial in ("dws_11", "sit_13"):
        for person in (1, 2):
            (folder / trial / f"sub_{person}.csv").unlink()
    with pytest.raises(InvalidInput, match="no whole trial of the test set"):
        read_motionsense(folder)
