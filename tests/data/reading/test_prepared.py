import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.facts import DatasetFacts
from fedfeast.data.reading.prepared import (
    DESCRIPTION,
    facts_in,
    full_disk_is_named,
    is_prepared,
    open_prepared,
    read_description,
    write_prepared,
)
from fedfeast.errors import InvalidInput

STATED = {"normalisation": {"mean": [0.5], "deviation": [0.25]}, "source": {"official": "somewhere"}}


def decoded(server: int = 0) -> Decoded:
    counts = {"train": 5, "test": 3} | ({"server": server} if server else {})
    labels = {split: np.arange(count, dtype=np.int64) % 2 for split, count in counts.items()}

    def images() -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
        for split, count in counts.items():
            for position in reversed(range(count)):
                yield split, position, np.full((1, 1, 4, 4), 10 * len(split) + position, np.uint8)

    return Decoded(("a", "b"), 1, 4, labels, images())


def test_what_is_written_is_opened_again(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    content = write_prepared(tmp_path / "mine", decoded(server=2), STATED, lambda *numbers: seen.append(numbers))
    assert content == read_description(tmp_path / "mine") | {"class_names": ("a", "b")}
    assert facts_in(content) == DatasetFacts(2, 1, 4, 5, 3, 2)
    dataset = open_prepared(tmp_path / "mine")
    assert dataset.train.inputs.shape == (5, 1, 4, 4)
    assert dataset.train.inputs[:, 0, 3, 3].tolist() == [50, 51, 52, 53, 54]
    assert dataset.train.labels.tolist() == [0, 1, 0, 1, 0]
    assert dataset.server is not None
    assert len(dataset.server) == 2
    assert dataset.normalisation is not None
    assert dataset.normalisation.mean == (0.5,)
    assert seen[-1] == (10, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_arrays_are_mapped_and_their_files_never_change(tmp_path: Path) -> None:
    write_prepared(tmp_path / "mine", decoded(), STATED)
    before = (tmp_path / "mine" / "train_images.npy").read_bytes()
    dataset = open_prepared(tmp_path / "mine")
    mapped = Path("/proc/self/maps").read_text() if sys.platform == "linux" else "train_images.npy"
    assert "train_images.npy" in mapped
    dataset.train.inputs.zero_()
    assert (tmp_path / "mine" / "train_images.npy").read_bytes() == before


def test_writing_again_replaces_everything_and_leaves_other_files(tmp_path: Path) -> None:
    write_prepared(tmp_path / "mine", decoded(server=2), STATED)
    (tmp_path / "mine" / "archive.tar.gz").write_text("kept")
    (tmp_path / ".mine.partial").mkdir()  # of a killed process
    write_prepared(tmp_path / "mine", decoded(), STATED)
    assert open_prepared(tmp_path / "mine").server is None
    assert not (tmp_path / "mine" / "server_images.npy").exists()
    assert (tmp_path / "mine" / "archive.tar.gz").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_failure_half_way_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
        yield "train", 0, np.zeros((1, 1, 4, 4), np.uint8)
        raise InvalidInput("image 2 does not decode")

    whole = decoded()
    with pytest.raises(InvalidInput, match="image 2"):
        write_prepared(tmp_path / "mine", Decoded(("a", "b"), 1, 4, whole.labels, broken()), STATED)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    whole = decoded()
    with pytest.raises(InvalidInput, match="gave 1 images instead of 8"):
        write_prepared(
            tmp_path / "mine",
            Decoded(("a", "b"), 1, 4, whole.labels, [("train", 0, np.zeros((1, 1, 4, 4), np.uint8))]),
            STATED,
        )
    assert list(tmp_path.iterdir()) == []


def test_damage_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_prepared(folder, decoded(), STATED)
    content = (folder / DESCRIPTION).read_text()
    images = (folder / "train_images.npy").read_bytes()
    remedy = "prepare it again with fedfeast data prepare mine --from PATH --replace"
    (folder / "train_images.npy").write_bytes(images[:-1])
    with pytest.raises(
        InvalidInput, match=rf"train_images.npy has {len(images) - 1} bytes instead of {len(images)}: {remedy}"
    ):
        open_prepared(folder)
    (folder / "train_images.npy").write_bytes(b"x" * len(images))
    with pytest.raises(InvalidInput, match=rf"train_images.npy is damaged .*: {remedy}"):
        open_prepared(folder)
    (folder / "train_images.npy").unlink()
    with pytest.raises(InvalidInput, match=rf"train_images.npy is missing: {remedy}"):
        open_prepared(folder)
    (folder / "train_images.npy").write_bytes(images)
    for broken in ("", "[]", "{}", content.replace('"classes": 2', '"classes": "two"')):
        (folder / DESCRIPTION).write_text(broken)
        with pytest.raises(InvalidInput, match=rf"dataset.json is damaged .*: {remedy}"):
            open_prepared(folder)
    (folder / DESCRIPTION).write_text(content.replace('"side": 4', '"side": 5'))
    with pytest.raises(InvalidInput, match=r"holds uint8 \(5, 1, 4, 4\) instead of uint8 \(5, 1, 5, 5\)"):
        open_prepared(folder)
    (folder / DESCRIPTION).write_text(content.replace('"classes": 2', '"classes": 1'))
    with pytest.raises(InvalidInput, match="labels outside 0 to 0"):
        open_prepared(folder)
    (folder / DESCRIPTION).unlink()
    assert not is_prepared(folder)
    with pytest.raises(InvalidInput, match=rf"mine holds no dataset.json: {remedy}"):
        read_description(folder)


def spoken() -> Decoded:
    tokens = np.arange(15).reshape(3, 5) % 7
    following = np.where(tokens > 5, -1, tokens + 1)
    splits = {
        "train": (tokens[:2].astype(np.int16), following[:2]),
        "test": (tokens[2:].astype(np.int16), following[2:]),
    }
    clients = (("ann", "bob"), {"train": np.array([1, 0]), "test": np.array([1])})
    return decoded_arrays("abcdefg", splits, clients, kind="tokens", task="next-token")


def test_other_kinds_are_opened_again_with_their_clients(tmp_path: Path) -> None:
    content = write_prepared(tmp_path / "mine", spoken(), {"normalisation": None})
    assert facts_in(content) == spoken().facts == facts_in(read_description(tmp_path / "mine"))
    assert sorted(content["arrays"]) == sorted(
        f"{split}_{array}.npy" for split in ("train", "test") for array in ("inputs", "labels", "clients")
    )
    dataset = open_prepared(tmp_path / "mine")
    assert dataset.clients is not None
    assert (dataset.clients.names, dataset.clients.train.tolist()) == (("ann", "bob"), [1, 0])
    assert dataset.train.labels.tolist() == [[1, 2, 3, 4, 5], [6, -1, 1, 2, 3]]
    write_prepared(tmp_path / "mine", decoded(), STATED)
    assert not list((tmp_path / "mine").glob("*_inputs.npy"))
    assert open_prepared(tmp_path / "mine").clients is None


@pytest.mark.parametrize(
    ("task", "labels", "bad", "sentence"),
    [
        ("multi-label", np.eye(2, dtype=np.uint8), 2, "labels outside 0 to 1"),
        ("regression", np.ones((2, 2), np.float32), np.inf, "labels that are no finite numbers"),
        ("classification", np.array([0, 1]), 2, "labels outside 0 to 1"),
    ],
)
def test_labels_of_every_task_are_checked(
    tmp_path: Path, task: str, labels: NDArray[np.generic], bad: float, sentence: str
) -> None:
    inputs = np.ones((2, 3), np.float32)
    arrays = decoded_arrays("ab", {"train": (inputs, labels), "test": (inputs, labels)}, kind="numbers", task=task)
    write_prepared(tmp_path / "mine", arrays, {"normalisation": None})
    assert open_prepared(tmp_path / "mine").train.labels.tolist() == labels.tolist()
    labels.flat[1] = bad
    np.save(tmp_path / "mine" / "test_labels.npy", labels)
    with pytest.raises(InvalidInput, match=rf"test_labels.npy has {sentence}: prepare it again"):
        open_prepared(tmp_path / "mine")


def test_damage_of_clients_and_tokens_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_prepared(folder, spoken(), {"normalisation": None})
    content = (folder / DESCRIPTION).read_text()
    np.save(folder / "train_clients.npy", np.array([0, 2]))
    with pytest.raises(InvalidInput, match=r"train_clients.npy has clients outside 0 to 1"):
        open_prepared(folder)
    np.save(folder / "train_inputs.npy", np.full((2, 5), 7, np.int16))
    with pytest.raises(InvalidInput, match=r"train_inputs.npy has tokens outside 0 to 6"):
        open_prepared(folder)
    for old, new in (('"tokens"', '"words"'), ('"next-token"', '"guess"'), ('"train_clients.npy"', '"clients.npy"')):
        (folder / DESCRIPTION).write_text(content.replace(old, new))
        with pytest.raises(InvalidInput, match=r"dataset.json is damaged"):
            open_prepared(folder)


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    write_prepared(tmp_path / "mine", decoded(), STATED)
    listed = json.loads((tmp_path / "mine" / DESCRIPTION).read_text())["arrays"]
    named = subprocess.run(["sha256sum", *listed], cwd=tmp_path / "mine", capture_output=True, text=True, check=True)
    assert {line.split()[1]: line.split()[0] for line in named.stdout.splitlines()} == {
        file: facts["sha256"] for file, facts in listed.items()
    }


WRITE = """
import sys
from pathlib import Path
import numpy as np
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.errors import InvalidInput
labels = {"train": np.arange(4000) % 2, "test": np.arange(10) % 2}
blocks = [("train", 0, np.ones((4000, 1, 32, 32), np.uint8)), ("test", 0, np.ones((10, 1, 32, 32), np.uint8))]
try:
    write_prepared(Path(sys.argv[1]), Decoded(("a", "b"), 1, 32, labels, blocks), {"normalisation": None})
except InvalidInput as error:
    sys.exit(str(error))
"""


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [sys.executable, "-c", WRITE, tmp_path / "mine"], capture_output=True, text=True, preexec_fn=limit_file_size
    )
    assert done.returncode == 1
    assert f"the disk of {tmp_path} is full (File too large): mine needs 4.11 MB there; free it" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_really_full_disk_too(small_disk: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITE, small_disk / "mine"], capture_output=True, text=True)
    assert f"the disk of {small_disk} is full (No space left on device): mine needs 4.11 MB" in done.stderr
    assert list(small_disk.iterdir()) == []


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), full_disk_is_named(tmp_path, "nothing"):
        raise PermissionError(13, "denied")
