import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedfeast.data.datasets import DATA_FOLDER_VARIABLE, DATASETS, FACTS, data_folder, load_dataset
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator


def write_cifar100(root: Path, examples: int = 20) -> np.ndarray:
    """Write small files in the official layout; return the training images."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    generator = named_generator(0, "cifar")
    pixels = generator.integers(0, 256, (examples, 3072), dtype=np.uint8)
    for name in ("train", "test"):
        content = {
            b"data": pixels,
            b"fine_labels": [i % 100 for i in range(examples)],
            b"coarse_labels": [0] * examples,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return pixels


def write_cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]):
        pixels = np.full((4, 3072), number, dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": [0, 1, 2, 9]}, protocol=2))


def test_digits() -> None:
    digits = load_dataset("digits")
    assert digits.train.images.shape[1:] == (1, 8, 8)
    assert len(digits.train) + len(digits.test) == 1797
    counts = np.bincount(digits.test.labels.numpy())
    assert len(counts) == digits.classes == 10
    assert counts.max() - counts.min() <= 2
    assert int(digits.train.images.max()) == 255


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_declared_facts_are_true(name: str) -> None:
    dataset, facts = load_dataset(name), FACTS[name]
    assert dataset.train.images.shape == (facts.train_examples, facts.channels, facts.side, facts.side)
    assert len(dataset.test) == facts.test_examples
    assert dataset.classes == facts.classes
    assert set(FACTS) == set(DATASETS)


def test_synthetic_is_the_same_every_time() -> None:
    one, two = load_dataset("synthetic"), load_dataset("synthetic")
    assert len(one.train) == 60_000
    assert bool((one.train.images == two.train.images).all())


def test_cifar100_from_the_official_files(tmp_path: Path) -> None:
    pixels = write_cifar100(tmp_path)
    cifar = load_dataset("cifar100", str(tmp_path))
    assert cifar.classes == 100
    assert cifar.train.images.shape == (20, 3, 32, 32)
    assert np.array_equal(cifar.train.images.numpy().reshape(20, -1), pixels)
    assert cifar.train.labels.tolist() == list(range(20))
    assert cifar.normalisation is not None


def test_cifar10_joins_its_five_batches(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    cifar = load_dataset("cifar10", str(tmp_path))
    assert len(cifar.train) == 20
    assert cifar.train.images[:, 0, 0, 0].tolist() == [n for n in range(5) for _ in range(4)]
    assert int(cifar.test.images.max()) == 5


def test_a_missing_file_says_which_and_where(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=rf"needs the file {tmp_path}/cifar-100-python/train: unpack .* into {tmp_path}"
    ):
        load_dataset("cifar100", str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.uint8)}),
        pickle.dumps({b"data": np.zeros((2, 3071), dtype=np.uint8), b"fine_labels": [0, 1]}),
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.uint8), b"fine_labels": [0]}),
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.uint8), b"fine_labels": [0, 250]}),
        pickle.dumps(os.system),
    ],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path: Path, content: bytes) -> None:
    write_cifar100(tmp_path)
    (tmp_path / "cifar-100-python" / "train").write_bytes(content)
    with pytest.raises(InvalidInput, match="unpack"):
        load_dataset("cifar100", str(tmp_path))


def test_where_data_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_FOLDER_VARIABLE, "/from/environment")
    assert data_folder("/given") == Path("/given")
    assert data_folder(None) == Path("/from/environment")
    monkeypatch.delenv(DATA_FOLDER_VARIABLE)
    assert data_folder(None) == Path.home() / ".fedfeast" / "data"
