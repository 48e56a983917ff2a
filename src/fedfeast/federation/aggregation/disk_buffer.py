"""Changes of clients kept on disk, and read back block by block of the global vector."""

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.routing import SliceMap

BLOCK_BYTES = 16 * 2**20  # of one block of all changes, in memory at once; to sort and weigh it takes twelve times that
LEAST_BLOCK = 1024  # positions


class DiskBuffer:
    """One file without a name: the system forgets it with the process, however that ends.

    A change is stored once as its blocks in order, each a bit per position (has the client a say there?) and the
    values of the positions with a say. Memory holds one full-length vector and one block of all changes.
    """

    def __init__(self, size: int, expected_changes: int, dtype: torch.dtype) -> None:
        self._size, self._dtype = size, torch.float64 if dtype == torch.float64 else torch.float32
        bytes_each = torch.finfo(self._dtype).bits // 8
        fitting = BLOCK_BYTES // (bytes_each * max(expected_changes, 1))
        self._block = min(size, max(LEAST_BLOCK, fitting - fitting % 8))
        self._file = tempfile.TemporaryFile(prefix="fedfeast-buffer-")  # noqa: SIM115 - closed by close()
        self._starts: list[int] = []
        self._scratch: Tensor | None = None

    def __len__(self) -> int:
        return len(self._starts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()

    def add(self, slice_map: SliceMap, change: Tensor, counted: Tensor | None = None) -> None:
        """Keep one client's change; where ``counted`` is false the client has no say."""
        if self._scratch is None:
            self._scratch = torch.empty(self._size, dtype=self._dtype)
        local = change.to("cpu", self._dtype)
        if counted is not None:
            local = torch.where(counted.cpu(), local, torch.nan)
        self._scratch.fill_(torch.nan)
        slice_map.scatter_(self._scratch, local)
        self._starts.append(self._file.tell())
        whole = self._scratch.numpy()
        for start in range(0, self._size, self._block):
            part = whole[start : start + self._block]
            has_say = ~np.isnan(part)
            self._file.write(np.packbits(has_say).tobytes())
            self._file.write(part[has_say].tobytes())

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the positions of each block and all changes there, (changes, positions), NaN where no say."""
        self._file.flush()
        self._scratch = None
        cursors, kind = list(self._starts), np.float64 if self._dtype == torch.float64 else np.float32
        for start in range(0, self._size, self._block):
            length = min(self._block, self._size - start)
            rows = np.full((len(cursors), length), np.nan, dtype=kind)
            for row, cursor in enumerate(cursors):
                self._file.seek(cursor)
                bits = np.frombuffer(self._file.read(-(-length // 8)), dtype=np.uint8)
                has_say = np.unpackbits(bits, count=length).astype(bool)
                values = self._file.read(int(has_say.sum()) * rows.itemsize)
                rows[row, has_say] = np.frombuffer(values, dtype=kind)
                cursors[row] = self._file.tell()
            yield slice(start, start + length), torch.from_numpy(rows)
