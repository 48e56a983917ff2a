"""What is known of the data sets without their files: their facts, official archives and readers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedfeast.data.examples import Normalisation
from fedfeast.data.reading.prepared import DatasetFacts, Decoded
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
    md5: str


@dataclass(frozen=True)
class OfficialDataset:
    """A published data set; training examples are equally many per class."""

    facts: DatasetFacts
    archives: tuple[Archive, ...]
    unpacked: str  # the folder that unpacking gives; empty where the archives are single files
    marker: str  # what tells an unpacked folder; a folder where it ends in a slash
    read: Callable[[Path], Decoded]
    normalisation: Normalisation | None = None  # published; measured from the clients' pool where there is none

    def find(self, place: Path) -> Path | None:
        """Return the unpacked folder or the archive at or in a place, whichever is there."""
        if place.is_file():
            return place
        for folder in (place / self.unpacked, place):
            if _is_there(folder, self.marker):
                return folder
        archive = place / self.archives[0].file
        return archive if self.unpacked and archive.is_file() else None


def _is_there(folder: Path, marker: str) -> bool:
    if marker.endswith("/"):
        return (folder / marker).is_dir()
    return (folder / marker).is_file() or (folder / f"{marker}.gz").is_file()


def _fashion_archive(file: str, md5: str) -> Archive:
    return Archive(file, f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}", md5)


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
        "data_batch_1",
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
        "train",
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
        "valid/airplane/",
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
        "wnids.txt",
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
        "train-images-idx3-ubyte",
        read_fashion_mnist,
    ),
}
