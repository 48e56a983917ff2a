import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfeast.data.reading.catalogue import OfficialDataset
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.readers import read_cifar100, read_cinic10, read_fashion_mnist, read_tinyimagenet
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]
NAMES = ("cifar10", "cifar100", "cinic10", "tinyimagenet", "fashion-mnist")


def arrays(decoded: Decoded) -> dict[str, np.ndarray]:
    shape = (decoded.channels, decoded.side, decoded.side)
    images = {split: np.zeros((len(labels), *shape), np.uint8) for split, labels in decoded.labels.items()}
    for split, first, block in decoded.inputs:
        images[split][first : first + len(block)] = block
    return images


@pytest.mark.parametrize("name", NAMES)
def test_archive_and_unpacked_folder_give_the_same(
    tmp_path: Path, name: str, small: dict[str, OfficialDataset], write_archive: Write, write_unpacked: Write
) -> None:
    packed = small[name].read(write_archive(name, tmp_path / "packed"))
    folder = small[name].read(write_unpacked(name, tmp_path / "unpacked"))
    assert packed.facts == folder.facts == small[name].facts
    assert packed.class_names == folder.class_names
    for split in packed.labels:
        assert np.array_equal(packed.labels[split], folder.labels[split])
    one, other = arrays(packed), arrays(folder)
    assert all(np.array_equal(one[split], other[split]) for split in one)
    assert all(images.any(axis=(1, 2, 3)).all() for images in one.values())


def test_cifar100_keeps_the_official_order(
    tmp_path: Path, write_unpacked: Write, official_contents: Callable[[str], dict[str, bytes]]
) -> None:
    decoded = read_cifar100(write_unpacked("cifar100", tmp_path))
    pixels = pickle.loads(official_contents("cifar100")["cifar-100-python/train"], encoding="bytes")[b"data"]
    assert np.array_equal(arrays(decoded)["train"].reshape(20, -1), pixels)
    assert decoded.labels["train"].tolist() == list(range(20))
    assert decoded.class_names[7] == "class 7"
    (tmp_path / "cifar-100-python" / "meta").unlink()
    assert read_cifar100(tmp_path / "cifar-100-python").class_names[7] == "7"


def test_tinyimagenet_takes_the_validation_split_as_test_set_and_grey_images_in_colour(
    tmp_path: Path, write_archive: Write, official_contents: Callable[[str], dict[str, bytes]]
) -> None:
    decoded, files = read_tinyimagenet(write_archive("tinyimagenet", tmp_path)), official_contents("tinyimagenet")
    images = arrays(decoded)
    assert decoded.class_names == ("n01000000", "n02000000", "n03000000")
    assert decoded.labels["train"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert decoded.labels["test"].tolist() == [0, 0, 1, 1, 2, 2]
    with Image.open(io.BytesIO(files["tiny-imagenet-200/train/n01000000/images/n01000000_1.JPEG"])) as grey:
        assert grey.mode == "L"
        assert all(np.array_equal(channel, np.asarray(grey)) for channel in images["train"][1])
    with Image.open(io.BytesIO(files["tiny-imagenet-200/val/images/val_1.JPEG"])) as first:  # of n01000000
        assert np.array_equal(images["test"][0].transpose(1, 2, 0), np.asarray(first))


def test_cinic10_gives_its_validation_split_to_the_server(
    tmp_path: Path, write_archive: Write, official_contents: Callable[[str], dict[str, bytes]]
) -> None:
    decoded = read_cinic10(write_archive("cinic10", tmp_path))
    assert decoded.class_names[:2] == ("airplane", "automobile")
    assert decoded.labels["server"].tolist() == decoded.labels["train"].tolist() == [n // 2 for n in range(20)]
    with Image.open(io.BytesIO(official_contents("cinic10")["valid/automobile/aut-1.png"])) as image:
        assert np.array_equal(arrays(decoded)["server"][3].transpose(1, 2, 0), np.asarray(image))


def test_fashion_mnist_compressed_or_not(tmp_path: Path, write_archive: Write) -> None:
    folder = write_archive("fashion-mnist", tmp_path)
    compressed = arrays(read_fashion_mnist(folder))["train"]
    packed = folder / "train-images-idx3-ubyte.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert np.array_equal(arrays(read_fashion_mnist(folder))["train"], compressed)
    assert read_fashion_mnist(folder).class_names[9] == "Ankle boot"


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
def test_a_damaged_or_hostile_pickle_is_refused(tmp_path: Path, content: bytes, write_unpacked: Write) -> None:
    folder = write_unpacked("cifar100", tmp_path)
    (folder / "train").write_bytes(content)
    with pytest.raises(InvalidInput, match="unpack"):
        read_cifar100(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"", "damaged or incomplete"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"\0\0\x08\x01" + bytes(12), mtime=0), "magic number is 0x801"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"\0\0\x08\x03" + bytes(4), mtime=0), "damaged or incomplete"),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(b"\0\0\x08\x01\0\0\0\1\0", mtime=0), "6 images but other labels"),
        ("t10k-labels-idx1-ubyte.gz", None, "lacks t10k-labels-idx1-ubyte.gz"),
    ],
)
def test_damaged_idx_files_are_named(
    tmp_path: Path, file: str, content: bytes | None, message: str, write_archive: Write
) -> None:
    folder = write_archive("fashion-mnist", tmp_path)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read_fashion_mnist(folder)


def test_trees_name_what_is_missing_or_wrong(tmp_path: Path, write_unpacked: Write) -> None:
    folder = write_unpacked("tinyimagenet", tmp_path)
    (folder / "val" / "images" / "val_9.JPEG").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"val_9.JPEG belongs to 'no class'"):
        read_tinyimagenet(folder)
    (folder / "wnids.txt").unlink()
    with pytest.raises(InvalidInput, match=r"lacks wnids.txt"):
        read_tinyimagenet(folder)
    cinic = write_unpacked("cinic10", tmp_path)
    broken = cinic / "train" / "bird" / "bir-0.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(InvalidInput, match=rf"{broken} does not decode as an image"):
        arrays(read_cinic10(cinic))
