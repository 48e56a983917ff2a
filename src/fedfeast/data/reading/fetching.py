"""Official archives from their publishers' addresses: resumed where they broke off, and checked."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedfeast.data.reading.catalogue import OFFICIAL, Archive, OfficialDataset
from fedfeast.data.reading.prepared import full_disk_is_named, is_prepared, open_prepared, read_description
from fedfeast.data.reading.preparing import data_folder, how_to_get, missing_archives, prepare_data
from fedfeast.errors import InvalidInput
from fedfeast.locks import held_alone

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0

Report = Callable[[str, int, int], None]  # what is done, how much of it, of how much


def fetch_data(
    name: str,
    folder: str | Path | None = None,
    on_progress: Report | None = None,
    official: Mapping[str, OfficialDataset] = OFFICIAL,
) -> dict[str, Any]:
    """Download what is missing of an official data set, check it, and prepare it; return its description."""
    if name not in official:
        raise InvalidInput(f"{name!r} is no data set that can be fetched: choose one of {', '.join(official)}.")
    report = on_progress or (lambda what, done, total: None)
    place = data_folder(folder) / name
    prepared = is_prepared(place)
    if prepared and _is_whole(place):
        return read_description(place)
    missing = missing_archives(name, official[name], place.parent)
    if not all(archive.md5 for archive in missing):
        raise InvalidInput(
            f"{name} cannot be fetched, since its publisher states no checksum: "
            f"{how_to_get(name, official[name], place.parent)}."
        )
    if missing:
        with full_disk_is_named(place.parent, f"the archives of {name} do not fit"):
            place.mkdir(parents=True, exist_ok=True)
        for archive in official[name].archives:
            if not (place / archive.file).is_file():
                fetch_archive(name, archive, place, report)

    def decoding(done: int, total: int) -> None:
        report("decoding", done, total)

    return prepare_data(name, None, folder, None, prepared, decoding, official)


def _is_whole(place: Path) -> bool:
    try:
        open_prepared(place)
    except InvalidInput:
        return False
    return True


def fetch_archive(name: str, archive: Archive, place: Path, report: Report) -> Path:
    """Download one archive into a folder, from where an earlier try broke off; only a whole one gets its name."""
    lock, again = place / f".{archive.file}.lock", f"wait for it, then run fedfeast data fetch {name} again"
    with held_alone(lock, f"another process is fetching {archive.file} into {place}: {again}."):
        if not (place / archive.file).is_file():
            _fetch_alone(name, archive, place, report)
    return place / archive.file


def _fetch_alone(name: str, archive: Archive, place: Path, report: Report) -> None:
    partial = place / f"{archive.file}.partial"
    try:
        with full_disk_is_named(place, f"{archive.file} does not fit"):
            _download(archive, partial, report)
    except InvalidInput:
        partial.unlink(missing_ok=True)
        raise
    except (OSError, http.client.HTTPException) as error:
        kept = partial.stat().st_size if partial.is_file() else 0
        resume = f"{kept} bytes are kept and a new try goes on from there" if kept else "try again later"
        raise InvalidInput(
            f"cannot fetch {archive.address} ({_reason(error)}): {resume}, or get {archive.file} in another way, "
            f"put it into {place} and run fedfeast data prepare {name}."
        ) from error
    _check(archive, partial)
    partial.replace(place / archive.file)


def _download(archive: Archive, partial: Path, report: Report) -> None:
    done = partial.stat().st_size if partial.is_file() else 0
    headers = {"User-Agent": "fedfeast", **({"Range": f"bytes={done}-"} if done else {})}
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(archive.address, headers=headers), timeout=TIMEOUT_SECONDS
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            return  # it was complete already, or is none of ours: the checksum decides
        raise
    with answer, partial.open("ab") as file:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0
            file.truncate(0)
        total = done + int(answer.headers.get("Content-Length") or 0)
        while chunk := answer.read(CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            report(archive.file, done, max(total, done))
    if done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _check(archive: Archive, partial: Path) -> None:
    with partial.open("rb") as file:
        actual = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if actual != archive.md5:
        partial.unlink()
        raise InvalidInput(
            f"{archive.file} from {archive.address} has the md5 checksum {actual} instead of {archive.md5} "
            "and was removed: fetch it again, or get it in another way."
        )


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return f"the connection ended {error.expected} bytes early"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(error).__name__
