"""A torch.export program as an ExecuTorch file, which phones run: convolutions by XNNPACK, one example at a time."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from fedfeast.errors import InvalidInput


def require_executorch() -> str:
    """Return the version of ExecuTorch; say what to install where it is missing."""
    if find_spec("executorch") is None:
        raise InvalidInput("writing .pte files needs the executorch package: pip install 'fedfeast[executorch]'.")
    return version("executorch")


def lower(program: ExportedProgram, example: Tensor) -> bytes:
    """Return the content of a .pte file for inputs of the example's very shape."""
    with _quietly():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        try:
            fixed = torch.export.export(program.module(), (example,))
            lowered = to_edge_transform_and_lower(fixed, partitioner=[XnnpackPartitioner()]).to_executorch()
        except Exception as error:  # whatever has no form there
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InvalidInput(
                f"ExecuTorch has no form for the network ({reason}): export it as onnx or pt2."
            ) from error
    return bytes(lowered.buffer)


class LoweredNetwork:
    """A .pte file's network, run by ExecuTorch's own runtime on this machine's CPU."""

    def __init__(self, content: bytes) -> None:
        with _quietly():
            from executorch.runtime import Runtime

            self._program: Any = Runtime.get().load_program(content)
            self._method: Any = self._program.load_method("forward")

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the outputs of inputs as the network takes them."""
        with _quietly():
            # The runtime gives out its own memory, which the next example overwrites.
            return torch.cat([self._method.execute([one.unsqueeze(0).contiguous()])[0].clone() for one in inputs])


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep to itself what ExecuTorch and torchao write of other devices and other versions of torch, in C++ too."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
