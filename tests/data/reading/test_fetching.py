import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedfeast.data.reading.catalogue import OfficialDataset
from fedfeast.data.reading.fetching import fetch_data
from fedfeast.data.reading.prepared import open_prepared
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]


class Publisher(ThreadingHTTPServer):
    """A web server of a folder that understands Range, and can break off in the middle."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.breaks_after: int | None = None
        self.understands_range = True
        self.ranges: list[str | None] = []  # of the requests so far


class Handler(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        path = self.server.folder / self.path.lstrip("/")
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.understands_range else 0
        if first and first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        end = len(content) if self.server.breaks_after is None else first + self.server.breaks_after
        self.wfile.write(content[first:end])

    def log_message(self, format: str, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    (tmp_path / "published").mkdir()
    with Publisher(tmp_path / "published") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Publish = Callable[[str], dict[str, OfficialDataset]]


@pytest.fixture
def publish(publisher: Publisher, small: dict[str, OfficialDataset], write_archive: Write) -> Publish:
    """Return what puts a small official data set on the server, under its checksums."""

    def put(name: str) -> dict[str, OfficialDataset]:
        write_archive(name, publisher.folder)
        archives = tuple(
            replace(
                archive,
                address=f"http://127.0.0.1:{publisher.server_port}/{archive.file}",
                md5=hashlib.md5((publisher.folder / archive.file).read_bytes()).hexdigest(),
            )
            for archive in small[name].archives
        )
        return {name: replace(small[name], archives=archives)}

    return put


@pytest.mark.parametrize("name", ["cifar100", "tinyimagenet", "fashion-mnist"])
def test_fetched_checked_and_prepared(tmp_path: Path, publisher: Publisher, publish: Publish, name: str) -> None:
    official = publish(name)
    seen: list[tuple[str, int, int]] = []
    content = fetch_data(name, tmp_path / "data", lambda *numbers: seen.append(numbers), official)
    assert content["examples"] == official[name].facts.examples
    assert len(open_prepared(tmp_path / "data" / name).test) == official[name].facts.test_examples
    assert {what for what, _, _ in seen} == {archive.file for archive in official[name].archives} | {"decoding"}
    assert all(0 < done <= total for _, done, total in seen)
    requests = len(publisher.ranges)
    assert requests == len(official[name].archives)
    assert fetch_data(name, tmp_path / "data", None, official)["examples"] == content["examples"]
    assert len(publisher.ranges) == requests  # nothing is fetched twice
    assert not list((tmp_path / "data").rglob("*.partial"))


def test_an_interrupted_fetch_goes_on_where_it_broke_off(
    tmp_path: Path, publisher: Publisher, publish: Publish
) -> None:
    official = publish("cifar100")
    size = (publisher.folder / "cifar-100-python.tar.gz").stat().st_size
    publisher.breaks_after = 30_000
    with pytest.raises(
        InvalidInput,
        match=rf"connection ended {size - 30_000} bytes early\): 30000 bytes are kept and a new try goes on from",
    ):
        fetch_data("cifar100", tmp_path / "data", None, official)
    assert (tmp_path / "data" / "cifar100" / "cifar-100-python.tar.gz.partial").stat().st_size == 30_000
    publisher.breaks_after = None
    fetch_data("cifar100", tmp_path / "data", None, official)
    assert publisher.ranges == [None, "bytes=30000-"]
    assert len(open_prepared(tmp_path / "data" / "cifar100").train) == 20


def begun(folder: Path, content: bytes) -> Path:
    """Return the place of a data set whose archive came in part."""
    place = folder / "data" / "cifar100"
    place.mkdir(parents=True)
    (place / "cifar-100-python.tar.gz.partial").write_bytes(content)
    return place


def test_a_server_without_ranges_is_asked_for_everything(
    tmp_path: Path, publisher: Publisher, publish: Publish
) -> None:
    official, place = publish("cifar100"), begun(tmp_path, b"old beginning")
    publisher.understands_range = False
    fetch_data("cifar100", tmp_path / "data", None, official)
    assert len(open_prepared(place).train) == 20


def test_a_partial_file_that_is_complete_only_gets_its_name(
    tmp_path: Path, publisher: Publisher, publish: Publish
) -> None:
    official, whole = publish("cifar100"), (publisher.folder / "cifar-100-python.tar.gz").read_bytes()
    place = begun(tmp_path, whole)
    fetch_data("cifar100", tmp_path / "data", None, official)
    assert (place / "cifar-100-python.tar.gz").read_bytes() == whole


def test_a_wrong_checksum_is_refused_and_removed(tmp_path: Path, publisher: Publisher, publish: Publish) -> None:
    official = publish("cifar100")
    (publisher.folder / "cifar-100-python.tar.gz").write_bytes(b"something else")
    with pytest.raises(
        InvalidInput, match=r"has the md5 checksum \w{32} instead of \w{32} and was removed: fetch it again"
    ):
        fetch_data("cifar100", tmp_path / "data", None, official)
    assert list((tmp_path / "data" / "cifar100").iterdir()) == []


def test_offline_is_one_sentence_with_address_file_and_place(
    tmp_path: Path, publisher: Publisher, publish: Publish
) -> None:
    official = publish("cifar100")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/cifar-100-python.tar.gz"
        archive = replace(official["cifar100"].archives[0], address=address)
        offline = {"cifar100": replace(official["cifar100"], archives=(archive,))}
        with pytest.raises(
            InvalidInput,
            match=rf"cannot fetch {address} \(.*refused\): try again later, or get cifar-100-python.tar.gz "
            rf"in another way, put it into {tmp_path}/data/cifar100 and run fedfeast data prepare cifar100",
        ):
            fetch_data("cifar100", tmp_path / "data", None, offline)
    (publisher.folder / "cifar-100-python.tar.gz").unlink()
    with pytest.raises(InvalidInput, match=r"cannot fetch .* \(Not Found\)"):
        fetch_data("cifar100", tmp_path / "data", None, official)


def test_only_what_is_missing_of_several_files_is_fetched(
    tmp_path: Path, publisher: Publisher, publish: Publish, write_archive: Write
) -> None:
    official = publish("fashion-mnist")
    place = write_archive("fashion-mnist", tmp_path / "data" / "fashion-mnist")
    (place / "t10k-labels-idx1-ubyte.gz").unlink()
    fetch_data("fashion-mnist", tmp_path / "data", None, official)
    assert len(publisher.ranges) == 1


def test_files_that_are_here_already_are_not_fetched(
    tmp_path: Path, publisher: Publisher, publish: Publish, write_unpacked: Write
) -> None:
    official = publish("cifar100")
    write_unpacked("cifar100", tmp_path / "data")
    fetch_data("cifar100", tmp_path / "data", None, official)
    assert publisher.ranges == []


def test_a_disk_that_fills_is_named_and_left_clean(small_disk: Path, publisher: Publisher, publish: Publish) -> None:
    official = publish("cifar100")
    (publisher.folder / "cifar-100-python.tar.gz").write_bytes(bytes(3_000_000))
    with pytest.raises(InvalidInput, match=r"disk of .*cifar100 is full .*: cifar-100-python.tar.gz does not fit"):
        fetch_data("cifar100", small_disk, None, official)
    assert list((small_disk / "cifar100").iterdir()) == []


@pytest.mark.parametrize("name", ["digits", "pets"])
def test_only_official_sets_can_be_fetched(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"'{name}' is no data set that can be fetched: choose one of cifar10, "):
        fetch_data(name, tmp_path)


def test_damaged_arrays_are_repaired(tmp_path: Path, publisher: Publisher, publish: Publish) -> None:
    official = publish("cifar100")
    fetch_data("cifar100", tmp_path / "data", None, official)
    (tmp_path / "data" / "cifar100" / "test_labels.npy").unlink()
    fetch_data("cifar100", tmp_path / "data", None, official)
    assert len(open_prepared(tmp_path / "data" / "cifar100").test) == 10
    assert len(publisher.ranges) == 1  # its archive was here


def test_a_second_fetch_leaves_the_first_ones_file_alone(
    tmp_path: Path, publisher: Publisher, publish: Publish
) -> None:
    official = publish("cifar100")
    refusals: list[str] = []

    def fetch_again(what: str, done: int, total: int) -> None:
        if what != "decoding" and not refusals:
            with pytest.raises(InvalidInput) as refused:
                fetch_data("cifar100", tmp_path / "data", None, official)
            refusals.append(str(refused.value))

    fetch_data("cifar100", tmp_path / "data", fetch_again, official)
    assert refusals == [
        f"another process is fetching cifar-100-python.tar.gz into {tmp_path}/data/cifar100: "
        "wait for it, then run fedfeast data fetch cifar100 again."
    ]
    assert len(open_prepared(tmp_path / "data" / "cifar100").train) == 20


def test_what_has_no_checksum_is_downloaded_by_hand(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"audiomnist cannot be fetched, since its publisher states no checksum: download https://github.com/\S+ "
        rf"and put AudioMNIST-\w+.zip into {tmp_path}/audiomnist and run fedfeast data prepare audiomnist\.",
    ):
        fetch_data("audiomnist", tmp_path)
    assert list(tmp_path.iterdir()) == []
