"""What is known of the data sets without their files: their facts, official archives and readers."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedfeast.data.examples import Normalisation
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.facts import DatasetFacts
from fedfeast.data.reading.natural.audiomnist import read_audiomnist
from fedfeast.data.reading.natural.motionsense import read_motionsense, read_motionsense_whole
from fedfeast.data.reading.natural.shakespeare import read_shakespeare
from fedfeast.data.reading.readers import (
    read_cifar10,
    read_cifar100,
    read_cinic10,
    read_fashion_mnist,
    read_tinyimagenet,
)


@dataclass(frozen=True)
class Archive:
    """A file as its publisher offers it."""

    file: str
    address: str
    md5: str = ""  # where the publisher states none, it is downloaded by hand


@dataclass(frozen=True)
class OfficialDataset:
    """A published data set; training examples are equally many per class where the clients are not the data's own."""

    facts: DatasetFacts
    archives: tuple[Archive, ...]
    unpacked: str  # the folder that unpacking gives; empty where the archives are single files
    markers: tuple[str, ...]  # what tells an unpacked folder, one of them; a folder where it ends in a slash
    read: Callable[[Path], Decoded]
    normalisation: Normalisation | None = None  # published; measured from the clients' pool where there is none
    arrays: str = ""  # an npz file that holds the same examples ready-made
    home: str = ""  # where its files lie in a data folder, where not under its own name
    given_marker: str = ""  # a pattern that tells a folder which a user names, in a form without fixed names
    varies: bool = False  # the published form has other numbers of examples and clients than the arrays
    licence: str = ""
    citation: str = ""

    def find(self, place: Path) -> Path | None:
        """Return the ready-made arrays, the unpacked folder or the archive at or in a place, whichever is there."""
        if place.is_file():
            return place
        if self.arrays and (place / self.arrays).is_file():
            return place / self.arrays
        for folder in (place / self.unpacked, place):
            if any(_is_there(folder, marker) for marker in self.markers):
                return folder
        archive = place / self.archives[0].file
        return archive if self.unpacked and archive.is_file() else None

    def find_given(self, place: Path) -> Path | None:
        """Return what a user names, which may have a form that tells nothing in a data folder."""
        fits = self.given_marker and place.is_dir() and any(place.glob(self.given_marker))
        return self.find(place) or (place if fits else None)

    def difference(self, actual: DatasetFacts, found: Path | None) -> str | None:
        """Return the first fact in which a data set differs where it must not; found is what it was read from."""
        free = ("train_examples", "test_examples", "clients")
        loose = self.varies and (found is None or found.name != self.arrays)
        stated = {field: count for field, count in asdict(self.facts).items() if not (loose and field in free)}
        return next((field for field, count in stated.items() if asdict(actual)[field] != count), None)


def _is_there(folder: Path, marker: str) -> bool:
    if marker.endswith("/"):
        return (folder / marker).is_dir()
    return (folder / marker).is_file() or (folder / f"{marker}.gz").is_file()


def _fashion_archive(file: str, md5: str) -> Archive:
    return Archive(file, f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}", md5)


def _github_archive(repository: str, commit: str) -> tuple[Archive, str]:
    """Return the zip of a repository at a commit, and the folder in it."""
    folder = f"{repository.partition('/')[2]}-{commit}"
    return Archive(f"{folder}.zip", f"https://github.com/{repository}/archive/{commit}.zip"), folder


_AUDIOMNIST = _github_archive("soerenab/AudioMNIST", "630d7dab4c040882834de6fa21baf9a60372accd")
_SHAKESPEARE = _github_archive("diversen/shakespeare-plays", "e3b8dd5a9e16a9058b2b58eb6e589ff79b5fd7e8")
_MOTIONSENSE = OfficialDataset(
    DatasetFacts(6, 6, 128, 16_579, 4_801, kind="numbers", shape=(6, 128), clients=24),
    (
        Archive(
            "A_DeviceMotion_data.zip",
            "https://github.com/mmalekzadeh/motion-sense/raw/261cb0d60611a049ab38127738e42cc510ed50f4"
            "/data/A_DeviceMotion_data.zip",
        ),
    ),
    "A_DeviceMotion_data",
    ("dws_1/",),
    read_motionsense,
    arrays="motionsense.npz",
    home="motionsense",
    licence="MIT License, Copyright (c) 2018 Mohammad Malekzadeh",
    citation="Malekzadeh, Clegg, Cavallaro, Haddadi: Mobile Sensor Data Anonymization, IoTDI 2019",
)

EMBEDDED = {
    "digits": DatasetFacts(10, 1, 8, 1442, 355),  # classes differ by a few examples
    "synthetic": DatasetFacts(10, 1, 8, 60_000, 6_000),
}
OFFICIAL = {
    "cifar10": OfficialDataset(
        DatasetFacts(10, 3, 32, 50_000, 10_000),
        (
            Archive(
                "cifar-10-python.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
            ),
        ),
        "cifar-10-batches-py",
        ("data_batch_1",),
        read_cifar10,
        Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    ),
    "cifar100": OfficialDataset(
        DatasetFacts(100, 3, 32, 50_000, 10_000),
        (
            Archive(
                "cifar-100-python.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
            ),
        ),
        "cifar-100-python",
        ("train",),
        read_cifar100,
        Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ),
    "cinic10": OfficialDataset(
        DatasetFacts(10, 3, 32, 90_000, 90_000, 90_000),
        (
            Archive(
                "CINIC-10.tar.gz",
                "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
                "6ee4d0c996905fe93221de577967a372",
            ),
        ),
        "CINIC-10",
        ("valid/airplane/",),
        read_cinic10,
        Normalisation((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)),
    ),
    "tinyimagenet": OfficialDataset(
        DatasetFacts(200, 3, 64, 100_000, 10_000),
        (
            Archive(
                "tiny-imagenet-200.zip",
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        "tiny-imagenet-200",
        ("wnids.txt",),
        read_tinyimagenet,
    ),
    "fashion-mnist": OfficialDataset(
        DatasetFacts(10, 1, 28, 60_000, 10_000),
        (
            _fashion_archive("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _fashion_archive("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            _fashion_archive("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            _fashion_archive("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        "",
        ("train-images-idx3-ubyte",),
        read_fashion_mnist,
    ),
    "audiomnist": OfficialDataset(
        DatasetFacts(10, 1, 32, 24_000, 6_000, clients=60),
        (_AUDIOMNIST[0],),
        _AUDIOMNIST[1],
        ("data/01/0_01_0.wav", "01/0_01_0.wav"),
        read_audiomnist,
        arrays="audiomnist.npz",
        licence="MIT License, Copyright (c) 2018 soerenab",
        citation="Becker and others: AudioMNIST: Exploring Explainable Artificial Intelligence for audio analysis "
        "on a simple benchmark, Journal of the Franklin Institute, 2023",
    ),
    "motionsense": _MOTIONSENSE,
    "motionsense-12": replace(
        _MOTIONSENSE,
        facts=replace(_MOTIONSENSE.facts, channels=12, shape=(12, 128)),
        read=read_motionsense_whole,
    ),
    "shakespeare": OfficialDataset(
        DatasetFacts(68, 1, 80, 43_358, 11_180, kind="tokens", task="next-token", shape=(80,), clients=1_027),
        (_SHAKESPEARE[0],),
        _SHAKESPEARE[1],
        ("csv/hamlet.csv", "hamlet.csv"),
        read_shakespeare,
        arrays="shakespeare.npz",
        given_marker="*/*.txt",
        varies=True,
        licence="the plays are in the public domain; the repository of their tables states no licence",
        citation="diversen/shakespeare-plays on GitHub, from the MIT online Shakespeare",
    ),
}
