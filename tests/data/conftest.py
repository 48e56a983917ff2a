"""The official data sets in miniature: their real formats and layouts, few examples."""

import gzip
import io
import os
import pickle
import struct
import subprocess
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedfeast.data.reading.catalogue import OFFICIAL, OfficialDataset
from fedfeast.randomness import named_generator

CINIC_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
WNIDS = ("n03000000", "n01000000", "n02000000")
AUDIOMNIST, SHAKESPEARE = (OFFICIAL[name].unpacked for name in ("audiomnist", "shakespeare"))
COUNTS = {  # classes, train, test, server
    "cifar10": (10, 20, 4, 0),
    "cifar100": (100, 20, 10, 0),
    "cinic10": (10, 20, 10, 20),
    "tinyimagenet": (3, 12, 6, 0),
    "fashion-mnist": (10, 12, 6, 0),
    "audiomnist": (10, 8, 4, 0),
    "motionsense": (6, 10, 4, 0),
    "motionsense-12": (6, 10, 4, 0),
    "shakespeare": (68, 16, 5, 0),
}
CLIENTS = {"audiomnist": 2, "motionsense": 2, "motionsense-12": 2, "shakespeare": 3}

Contents = dict[str, bytes]


def encode(side: int, number: int, kind: str, mode: str = "RGB") -> bytes:
    """Return an image file of noise around its own number."""
    shape = (side, side, 3) if mode == "RGB" else (side, side)
    pixels = named_generator(number, "image").integers(0, 256, shape, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def cifar_batch(first: int, count: int, label_key: bytes, classes: int) -> bytes:
    pixels = named_generator(first, "cifar").integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = [number % classes for number in range(count)]
    return pickle.dumps({b"data": pixels, label_key: labels}, protocol=2)


def contents_of_cifar10() -> Contents:
    files = {f"data_batch_{number}": cifar_batch(number, 4, b"labels", 10) for number in range(1, 6)}
    files["test_batch"] = cifar_batch(6, 4, b"labels", 10)
    files["batches.meta"] = pickle.dumps({b"label_names": [b"class %d" % n for n in range(10)]}, protocol=2)
    return {f"cifar-10-batches-py/{name}": content for name, content in files.items()}


def contents_of_cifar100() -> Contents:
    files = {
        "train": cifar_batch(0, 20, b"fine_labels", 100),
        "test": cifar_batch(1, 10, b"fine_labels", 100),
        "meta": pickle.dumps({b"fine_label_names": [b"class %d" % n for n in range(100)]}, protocol=2),
    }
    return {f"cifar-100-python/{name}": content for name, content in files.items()}


def contents_of_cinic10() -> Contents:
    files: Contents = {"README.md": b"about", "synsets-to-cifar-10-classes.txt": b"none"}
    for split, count in (("valid", 2), ("train", 2), ("test", 1)):
        for label, name in enumerate(CINIC_CLASSES):
            for number in range(count):
                seed = 1000 * len(files) + label
                files[f"{split}/{name}/{name[:3]}-{number}.png"] = encode(32, seed, "PNG")
    return files


def contents_of_tinyimagenet() -> Contents:
    files: Contents = {"wnids.txt": "\n".join(WNIDS).encode() + b"\n", "words.txt": b"n01000000\tthing\n"}
    rows = []
    for wnid in WNIDS:
        for number in range(4):
            mode = "L" if number == 1 else "RGB"  # as in the real one
            files[f"train/{wnid}/images/{wnid}_{number}.JPEG"] = encode(64, len(files), "JPEG", mode)
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b"boxes"
    for number in range(6):
        files[f"val/images/val_{number}.JPEG"] = encode(64, len(files), "JPEG")
        rows.append(f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t0\t63\t63")
    files["val/val_annotations.txt"] = "\n".join(rows).encode()
    files["test/images/test_0.JPEG"] = encode(64, 99, "JPEG")
    return {f"tiny-imagenet-200/{name}": content for name, content in files.items()}


def contents_of_fashion_mnist() -> Contents:
    files = {}
    for prefix, count in (("train", 12), ("t10k", 6)):
        pixels = named_generator(count, "idx").integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels.tobytes()
        files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(images)
        files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(struct.pack(">II", 0x801, count) + labels.tobytes())
    return files


def contents_of_audiomnist() -> Contents:
    files: Contents = {"README.md": b"about", "data/audioMNIST_meta.txt": b"{}"}
    for speaker in ("01", "02"):
        for digit in (0, 7):
            for take in (0, 39, 40):
                generator = named_generator(take, "wave", speaker, digit)
                samples = generator.integers(-3000, 3000, 4000 + 100 * digit, dtype=np.int16)
                buffer = io.BytesIO()
                with wave.open(buffer, "wb") as recording:
                    recording.setparams((1, 2, 48_000, 0, "NONE", ""))
                    recording.writeframes(samples.astype("<i2").tobytes())
                files[f"data/{speaker}/{digit}_{speaker}_{take}.wav"] = buffer.getvalue()
    return {f"{AUDIOMNIST}/{name}": content for name, content in files.items()}


def contents_of_motionsense() -> Contents:
    kinds = ["attitude.roll", "attitude.pitch", "attitude.yaw"]
    kinds += [f"{kind}.{axis}" for kind in ("gravity", "rotationRate", "userAcceleration") for axis in "xyz"]
    files: Contents = {}
    for person in (1, 2):
        for trial, length in (("dws_1", 200), ("sit_5", 256), ("dws_11", 192), ("sit_13", 127)):
            values = named_generator(person, "motion", trial).normal(size=(length, 12)).clip(-1, 1)
            rows = [f"{number}," + ",".join(f"{value:.6f}" for value in row) for number, row in enumerate(values)]
            files[f"{trial}/sub_{person}.csv"] = "\n".join(["," + ",".join(kinds), *rows, ""]).encode()
    return {f"A_DeviceMotion_data/{name}": content for name, content in files.items()}


def contents_of_shakespeare() -> Contents:
    head = "Chapter,Player,Line,Line ID,Stage Direction\nACT I,,,,\n,,No one says this.,1.1.0,\n,,,,Enter HAMLET\n"
    line = ',,"[Aside] To be, or  not to be, that is the question",1.1.1,\n'  # 41 characters and a newline
    files: Contents = {
        "csv/hamlet.csv": (head + ",HAMLET,,,\n" + 12 * line + ",Hamlet:,,,\n,,[Dies],1.1.2,\n").encode(),
        "csv/macbeth.csv": (head + ",FIRST WITCH,,,\n" + 8 * line + ",,LADY,1.1.3,\n").encode(),
        "csv/all.csv": b"all of them once more",
        "plays_meta.json": b'[{"name": "Hamlet, Prince of Denmark", "file_name": "hamlet"}]',
    }
    files["csv/macbeth.csv"] += (",MACBETH,,,\n" + 13 * line).encode()  # the name is broken in two
    files["csv/macbeth.csv"] += (",Porter,,,\n" + 4 * line).encode()  # too little
    return {f"{SHAKESPEARE}/{name}": content for name, content in files.items()}


CONTENTS: dict[str, Callable[[], Contents]] = {
    "cifar10": contents_of_cifar10,
    "cifar100": contents_of_cifar100,
    "cinic10": contents_of_cinic10,
    "tinyimagenet": contents_of_tinyimagenet,
    "fashion-mnist": contents_of_fashion_mnist,
    "audiomnist": contents_of_audiomnist,
    "motionsense": contents_of_motionsense,
    "motionsense-12": contents_of_motionsense,
    "shakespeare": contents_of_shakespeare,
}


@pytest.fixture
def official_contents() -> Callable[[str], Contents]:
    """Return what gives the files of a small official data set by their paths in its archive."""
    return lambda name: CONTENTS[name]()


@pytest.fixture
def small() -> dict[str, OfficialDataset]:
    """Return the official descriptions with the small numbers of examples."""
    described = {}
    for name, (classes, train, test, server) in COUNTS.items():
        facts = replace(OFFICIAL[name].facts, classes=classes, clients=CLIENTS.get(name, 0))
        facts = replace(facts, train_examples=train, test_examples=test, server_examples=server)
        described[name] = replace(OFFICIAL[name], facts=facts)
    return described


@pytest.fixture
def write_unpacked(small: dict[str, OfficialDataset]) -> Callable[[str, Path], Path]:
    """Return what writes an official data set's unpacked folder into a folder."""

    def write(name: str, folder: Path) -> Path:
        # CINIC-10's archive has no folder of its own around its splits.
        root = folder / "CINIC-10" if name == "cinic10" else folder
        for path, content in CONTENTS[name]().items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return folder / small[name].unpacked

    return write


@pytest.fixture
def write_archive(small: dict[str, OfficialDataset]) -> Callable[[str, Path], Path]:
    """Return what writes an official data set's archive into a folder."""

    def write(name: str, folder: Path) -> Path:
        path = folder / small[name].archives[0].file
        folder.mkdir(parents=True, exist_ok=True)
        if name == "fashion-mnist":
            for file, content in CONTENTS[name]().items():
                (folder / file).write_bytes(content)
            return folder
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                for file, content in CONTENTS[name]().items():
                    archive.writestr(file, content)
            return path
        with tarfile.open(path, "w:gz") as tar:
            for file, content in CONTENTS[name]().items():
                member = tarfile.TarInfo(f"./{file}" if name == "cinic10" else file)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return path

    return write


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
