"""From files as they come to prepared arrays: the official data sets, and a user's own."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedfeast.data.reading.catalogue import EMBEDDED, OFFICIAL, Archive, OfficialDataset
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.image_files import Fault, Undecodable
from fedfeast.data.reading.image_folders import read_image_folder
from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.own_arrays import decode_own
from fedfeast.data.reading.own_files import read_own_file
from fedfeast.data.reading.prepared import Progress, is_prepared, locked, write_prepared
from fedfeast.data.reading.sources import list_files
from fedfeast.errors import InvalidInput

DATA_FOLDER_VARIABLE = "FEDFEAST_DATA"
LISTED_FAULTS = 20  # skipped files that are named; all of them are counted


def data_folder(folder: str | Path | None) -> Path:
    """Return where data files are looked for: the given folder, $FEDFEAST_DATA, or ~/.fedfeast/data."""
    chosen = folder or os.environ.get(DATA_FOLDER_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".fedfeast" / "data"


def prepare_data(
    name: str,
    source: str | Path | None = None,
    folder: str | Path | None = None,
    options: PrepareOptions | None = None,
    replace: bool = False,
    on_progress: Progress | None = None,
    official: Mapping[str, OfficialDataset] = OFFICIAL,
) -> dict[str, Any]:
    """Decode an official data set, or a user's own file or folder under a new name; return its description."""
    data = data_folder(folder)
    _refuse_name(name, official)
    if name not in official and source is None:
        raise InvalidInput(
            f"{name!r} is no official data set ({', '.join(official)}): "
            "to prepare your own under this name, say where it is with --from PATH."
        )
    if name in official and options not in (None, PrepareOptions()):
        raise InvalidInput(f"{name} is an official data set of fixed size and split: leave out --size and its like.")
    with locked(data):
        if is_prepared(data / name) and not replace:
            raise InvalidInput(f"{data / name} is already prepared: choose another name, or say --replace.")
        if name in official:
            place = Path(source).expanduser() if source is not None else None
            return _prepare_official(name, official[name], data, place, on_progress)
        assert source is not None
        return _prepare_own(name, data, Path(source).expanduser(), options or PrepareOptions(), on_progress)


def prepare_found(name: str, official: OfficialDataset, data: Path) -> None:
    """Prepare an official data set from what lies in the data folder, unless another process just did."""
    with locked(data):
        if not is_prepared(data / name):
            _prepare_official(name, official, data, None, None)


def find_official(name: str, official: OfficialDataset, data: Path) -> Path | None:
    """Return where the data folder holds an official data set's files, if it does."""
    return official.find(data / name) or official.find(data / (official.home or name)) or official.find(data)


def how_to_get(name: str, official: OfficialDataset, data: Path) -> str:
    """Say in half a sentence how an official data set's files come into the data folder."""
    place = _official_place(name, official, data)
    missing = missing_archives(name, official, data)
    steps = ", ".join(f"download {one.address} and put {one.file} into {place}" for one in missing)
    fetching = f"run fedfeast data fetch {name}, or " if all(one.md5 for one in missing) else ""
    return f"{fetching}{steps} and run fedfeast data prepare {name}"


def missing_archives(name: str, official: OfficialDataset, data: Path) -> tuple[Archive, ...]:
    """Return the archives of an official data set whose files are not in the data folder, packed or unpacked."""
    if official.unpacked and find_official(name, official, data) is not None:
        return ()
    place = _official_place(name, official, data)
    paths = ((archive, place / archive.file) for archive in official.archives)
    return tuple(archive for archive, path in paths if not path.is_file() and not path.with_suffix("").is_file())


def _official_place(name: str, official: OfficialDataset, data: Path) -> Path:
    """Return where an official data set's files are, or belong where none are here."""
    return find_official(name, official, data) or data / (official.home or name)


def decode_official(name: str, official: OfficialDataset, found: Path) -> Decoded:
    """Decode an official data set and check that it is complete."""
    decoded = official.read(found)
    field = official.difference(decoded.facts, found)
    if field is not None:
        expected, actual = asdict(official.facts)[field], asdict(decoded.facts)[field]
        raise InvalidInput(
            f"{found} holds {actual} {field.replace('_', ' ')} of {name} instead of {expected}: "
            "it is incomplete; fetch or unpack the official archive again."
        )
    return decoded


def describe_official(official: OfficialDataset, found: Path) -> dict[str, Any]:
    """Return what dataset.json says of an official data set beside its facts."""
    normalisation = None if official.normalisation is None else asdict(official.normalisation)
    rights = {"licence": official.licence, "citation": official.citation}
    stated = {key: text for key, text in rights.items() if text}
    return {"normalisation": normalisation, "source": {"official": str(found)}, **stated}


def _prepare_official(
    name: str, official: OfficialDataset, data: Path, place: Path | None, on_progress: Progress | None
) -> dict[str, Any]:
    found = find_official(name, official, data) if place is None else official.find_given(place)
    if found is None and place is None:
        raise InvalidInput(f"the files of {name} are not in {data}: {how_to_get(name, official, data)}.")
    if found is None:
        files = " or ".join(filter(None, (official.archives[0].file, official.unpacked, official.arrays)))
        raise InvalidInput(
            f"{name} is the name of an official data set, and {place} holds no {files}: "
            "give its official files, or choose another name for your own."
        )
    decoded = decode_official(name, official, found)
    return write_prepared(data / name, decoded, describe_official(official, found), on_progress)


def _prepare_own(
    name: str, data: Path, source: Path, options: PrepareOptions, on_progress: Progress | None
) -> dict[str, Any]:
    if source.is_dir() or not source.suffix:
        return _prepare_folder(name, data, source, options, on_progress)
    decoded = decode_own(read_own_file(source, options), options)
    stated = {"file": str(source), **_draws(options, is_drawn=options.test is None)}
    return write_prepared(data / name, decoded, {"normalisation": None, "source": stated}, on_progress)


def _prepare_folder(
    name: str, data: Path, source: Path, options: PrepareOptions, on_progress: Progress | None
) -> dict[str, Any]:
    """Prepare a folder of images; files that are none are skipped, counted and, up to a limit, named."""
    is_drawn = options.clients is not None or not (source / "test").is_dir()
    if not source.is_dir():
        raise InvalidInput(f"--from {source} is no folder: give one that holds a folder of images per class.")
    stated = {"images": str(source), "size": options.size, **_draws(options, is_drawn), "listing": list_photos(source)}
    faults: tuple[Fault, ...] = ()
    while True:
        found = read_image_folder(source, options, faults)
        description: dict[str, Any] = {"normalisation": None, "source": stated}
        if found.skipped:
            named = [asdict(fault) for fault in sorted(found.skipped, key=lambda one: one.file)[:LISTED_FAULTS]]
            description["skipped"] = {"count": len(found.skipped), "files": named}
        try:
            return write_prepared(data / name, found.decoded, description, on_progress)
        except Undecodable as damaged:
            # Only decoding shows that a file is cut off: it is left out of the next try, of the draw of tests too.
            faults = (*faults, *damaged.faults)


def list_photos(source: Path) -> str:
    """Return a hash of a folder's files by name and size, which copying them leaves alone."""
    listed = ((name, (source / name).stat().st_size) for name in list_files(source))
    return hashlib.sha256(json.dumps(list(listed)).encode()).hexdigest()


def _draws(options: PrepareOptions, is_drawn: bool) -> dict[str, Any]:
    """Return the options that decide which examples are held out and whose they are."""
    named = {name: getattr(options, name) for name in ("clients", "labels", "test") if getattr(options, name)}
    return {"seed": options.seed, **({"test_share": options.share} if is_drawn else {}), **named}


def _refuse_name(name: str, official: Mapping[str, OfficialDataset]) -> None:
    if name in EMBEDDED:
        raise InvalidInput(f"{name} is embedded and needs no preparing: choose another name for your own data.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise InvalidInput(
            f"{name!r} is no name for a data set: "
            "use up to 64 letters, digits, '-', '_' and '.', with a letter or digit first."
        )
    taken = {known for known in (*EMBEDDED, *official) if name != known and _plain(name) == _plain(known)}
    if taken:
        raise InvalidInput(f"{name!r} looks like the known data set {min(taken)}: take that name or another one.")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
