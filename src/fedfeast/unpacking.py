"""How much a compressed file may unpack to, so that a small one cannot fill a memory."""

import gzip
from pathlib import Path

from fedfeast.errors import InvalidInput

# Choice: no archive of data that we know comes near either (docs/decisions/037).
FREE_BYTES = 256 << 20  # so much a file of any size may unpack to
MOST_RATIO = 100  # of unpacked to packed bytes beyond that
MOST_BYTES = 64 << 30  # in all


class UnpackedFile:
    """Reads a gzip stream as long as it stays within what its file may unpack to."""

    def __init__(self, source: Path, plain: gzip.GzipFile) -> None:
        self._source, self._plain = source, plain

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        content = self._plain.read(size)
        refuse_bomb(self._source, self._plain.tell())
        return content


def gunzip(source: Path) -> bytes:
    """Return what a gzip file unpacks to."""
    with gzip.open(source) as plain:
        file = UnpackedFile(source, plain)
        return b"".join(iter(lambda: file.read(1 << 20), b""))


def refuse_bomb(source: Path, unpacked_bytes: int) -> None:
    """Refuse a file that unpacks to more than its size explains."""
    packed = source.stat().st_size
    if unpacked_bytes > min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * packed)):
        raise InvalidInput(
            f"{source} has {packed} bytes and unpacks to {unpacked_bytes} or more, which no data explain: "
            "do not use it; if it is yours, store it uncompressed."
        )
