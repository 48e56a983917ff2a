"""Which test examples every network of a run has right, so that runs can be compared example by example."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedfeast.errors import InvalidInput
from fedfeast.runs.checkpoint import write_tensors


class KeptExamples:
    """The file of a run folder that has a bit for every network and test example."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, right: NDArray[np.bool_] | None) -> None:
        """Keep which examples are right, (points, examples), least price first; None leaves no file."""
        if right is None:
            self._path.unlink(missing_ok=True)
            return
        write_tensors(self._path, {"right": torch.from_numpy(np.packbits(right, axis=1))}, str(right.shape[1]))

    def load(self) -> NDArray[np.bool_] | None:
        """Return which examples are right; None where nobody kept it."""
        if not self._path.is_file():
            return None
        try:
            with safe_open(self._path, framework="pt") as file:
                examples, packed = int(file.metadata()["fedfeast"]), file.get_tensor("right").numpy()
            right = np.unpackbits(packed, axis=1, count=examples).astype(bool)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise InvalidInput(
                f"{self._path} is damaged ({error!r}): run fedfeast evaluate {self._path.parent}."
            ) from error
        return right
