"""The files of a data set as they come: in a folder, a tar or a zip archive, which is never unpacked."""

import difflib
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.unpacking import UnpackedFile, refuse_bomb

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,  # of names that are no text
    OverflowError,
    RuntimeError,  # of an encrypted zip
)


def list_files(source: Path) -> list[str]:
    """Return the paths of all regular files inside a folder or an archive, without hidden ones."""
    if source.is_dir():
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    elif not source.is_file():
        raise InvalidInput(f"{source} does not exist: give a folder or an archive.")
    else:
        with _readable(source):
            names = _list_archive(source)
    # A member's name is only ever looked up, never used as a path to write to.
    return sorted(name for name in names if not _is_hidden(name))


def read_files(source: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted files with their contents, in the order in which the source holds them."""
    if source.is_dir():
        for name in wanted:
            yield name, (source / name).read_bytes()
        return
    with _readable(source):
        if source.suffix == ".zip":
            with _open_zip(source) as archive:
                for name in wanted:
                    yield name, archive.read(name)
            return
        # A stream is decompressed once; going back to a member would start from the beginning.
        with gzip.open(source) as plain, _open_tar(source, plain) as stream:
            for member in stream:
                if member.isreg() and member.name in wanted:
                    content = stream.extractfile(member)
                    assert content is not None
                    yield member.name, content.read()


def read_arrays(source: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an npz file, in the order of the names; nothing in it may be a Python object."""
    try:
        with source.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InvalidInput(f"{source} holds one array without a name: save it with np.savez.")
            packed: Any = archive.zip
            refuse_bomb(source, sum(entry.file_size for entry in packed.infolist()))
            for name in names:
                if name not in archive:
                    near = suggest(name, archive.files)
                    raise InvalidInput(f"{source} has no array {name!r}{near}: it holds {', '.join(archive.files)}.")
            return {name: archive[name] for name in names}
    except FileNotFoundError:
        raise InvalidInput(f"{source} does not exist: give an npz file.") from None
    except InvalidInput:
        raise
    except (MemoryError, *_DAMAGE) as error:  # an array may claim any size
        if "allow_pickle" in str(error) and zipfile.is_zipfile(source):
            raise InvalidInput(
                f"{source} holds Python objects, which are not read: save numbers and plain text (dtype str) alone."
            ) from error
        raise InvalidInput(f"{source} is damaged or no npz file ({error}): save it again with np.savez.") from error


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _list_archive(source: Path) -> list[str]:
    if source.suffix == ".zip":
        with _open_zip(source) as archive:
            return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    with gzip.open(source) as plain:
        with _open_tar(source, plain) as stream:
            names = [member.name for member in stream if member.isreg()]
        while UnpackedFile(source, plain).read(1 << 20):  # to the checksum at the end
            pass
        return names


def _open_zip(source: Path) -> zipfile.ZipFile:
    """Open a zip archive; of what its list says none unpacks to more."""
    archive = zipfile.ZipFile(source)
    try:
        refuse_bomb(source, sum(entry.file_size for entry in archive.infolist()))
    except InvalidInput:
        archive.close()
        raise
    return archive


def _open_tar(source: Path, plain: gzip.GzipFile) -> tarfile.TarFile:
    file: Any = UnpackedFile(source, plain)  # a stream is read, and nothing else is done with it
    return tarfile.open(fileobj=file, mode="r|")


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Say in one sentence that an archive is damaged."""
    try:
        yield
    except InvalidInput:
        raise
    except _DAMAGE as error:
        raise InvalidInput(
            f"{source} is damaged or incomplete ({error}): remove it and fetch the archive again."
        ) from error


def _is_hidden(name: str) -> bool:
    """Tell the by-files of file managers, such as ._image.png and __MACOSX/, from data."""
    parts = [part for part in PurePosixPath(name).parts if part not in (".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
