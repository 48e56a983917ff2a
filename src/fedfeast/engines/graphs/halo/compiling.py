"""Programs of CUDA C++: compiled for a device when they are first needed there, or ahead, several at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from fedfeast.engines.graphs.halo.driver import Argument, Grid, LoadedCode
from fedfeast.engines.graphs.halo.nvrtc import Macros, cached_machine_code


class Launch(Protocol):
    """Launches one kernel on one device."""

    def __call__(self, grid: Grid, arguments: Sequence[Argument]) -> None:
        """Launch a grid of blocks, on the current stream."""


class Loaded(Protocol):
    """The kernels of one program on one device."""

    def function(self, name: str, shared_bytes: int, threads: int) -> Launch:
        """Return a kernel, with the shared memory and the threads of its blocks."""


def load_on_gpu(source_name: str, macros: Macros, device: torch.device) -> Loaded:
    """Compile a source of this folder for a GPU, and load it there."""
    texts = sources()
    headers = {name: text for name, text in texts.items() if name != source_name}
    capability = torch.cuda.get_device_capability(device)
    return LoadedCode(cached_machine_code(texts[source_name], source_name, headers, macros, capability), device)


# Who loads programs, by the type of device. A test that emulates kernels enters itself for the CPU.
LOADERS: dict[str, Callable[[str, Macros, torch.device], Loaded]] = {"cuda": load_on_gpu}


@cache
def sources() -> dict[str, str]:
    """The sources of this folder by their names; each may include the others."""
    files = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".cuh")]
    return {file.name: file.read_text() for file in sorted(files, key=lambda file: file.name)}


class Program:
    """A source of this folder with values for its macros."""

    def __init__(self, source_name: str, macros: Macros) -> None:
        self.source_name = source_name
        self.macros = dict(macros)
        self._loaded: dict[torch.device, Loaded] = {}
        self._lock = Lock()

    def kernel(self, name: str, shared_bytes: int, threads: int) -> "Kernel":
        """One of its kernels; nothing is compiled yet."""
        return Kernel(self, name, shared_bytes, threads)

    def load(self, device: torch.device) -> Loaded:
        """Compile and load for a device, unless that was done."""
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        with self._lock:
            if device not in self._loaded:
                self._loaded[device] = LOADERS[device.type](self.source_name, self.macros, device)
            return self._loaded[device]


@cache
def program_of(source_name: str, macros: tuple[tuple[str, int], ...]) -> Program:
    """Return the one program of a source and values for its macros."""
    return Program(source_name, dict(macros))


class Kernel:
    """A kernel of a program, for whichever device its tensors lie on."""

    def __init__(self, program: Program, name: str, shared_bytes: int, threads: int) -> None:
        self.program = program
        self.name = name
        self.shared_bytes = shared_bytes
        self.threads = threads
        self._on_gpus: dict[int, Launch] = {}

    def launch(self, grid: Grid, first: Tensor, *others: Argument) -> None:
        """Launch on the device of the first argument, or note the program down where that has no memory."""
        function = self._on_gpus.get(first.get_device())
        if function is None:
            if first.is_meta:
                _collected.get()[self.program] = None
                return
            function = self.program.load(first.device).function(self.name, self.shared_bytes, self.threads)
            if first.is_cuda:
                self._on_gpus[first.get_device()] = function
        function(grid, (first, *others))


Programs = dict[Program, None]  # a set in the order of its entries

_collected: ContextVar[Programs] = ContextVar("collected")


@contextmanager
def collected_programs() -> Iterator[Programs]:
    """Note down the programs of launches made inside on tensors without memory, each once."""
    programs: Programs = {}
    token = _collected.set(programs)
    try:
        yield programs
    finally:
        _collected.reset(token)


def load_programs(programs: Iterable[Program], device: torch.device, threads: int) -> None:
    """Compile and load programs for a device, several at a time."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda program: program.load(device), programs))
