"""The files of a data set as they come: in a folder, a tar or a zip archive, which is never unpacked."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fedfeast.errors import InvalidInput

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
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
            with zipfile.ZipFile(source) as archive:
                for name in wanted:
                    yield name, archive.read(name)
            return
        # A stream is decompressed once; going back to a member would start from the beginning.
        with gzip.open(source) as plain, tarfile.open(fileobj=plain, mode="r|") as stream:
            for member in stream:
                if member.isreg() and member.name in wanted:
                    content = stream.extractfile(member)
                    assert content is not None
                    yield member.name, content.read()


def _list_archive(source: Path) -> list[str]:
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    with gzip.open(source) as plain:
        with tarfile.open(fileobj=plain, mode="r|") as stream:
            names = [member.name for member in stream if member.isreg()]
        while plain.read(1 << 20):  # to the checksum at the end
            pass
        return names


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Say in one sentence that an archive is damaged."""
    try:
        yield
    except _DAMAGE as error:
        raise InvalidInput(
            f"{source} is damaged or incomplete ({error}): remove it and fetch the archive again."
        ) from error


def _is_hidden(name: str) -> bool:
    """Tell the by-files of file managers, such as ._image.png and __MACOSX/, from data."""
    parts = [part for part in PurePosixPath(name).parts if part not in (".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
