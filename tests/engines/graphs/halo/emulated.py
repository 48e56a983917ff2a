"""CUDA C++ kernels compiled with g++ and run on CPU tensors, a block's threads as fibers."""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch

Macros = Mapping[str, int | str]
Grid = tuple[int, ...]
Argument = torch.Tensor | int | float | None

HERE = Path(__file__).resolve().parent
PRIMITIVES = (HERE / "../../../../src/fedfeast/engines/graphs/halo").resolve()
OPTIMISATION = ("-O1", "-march=native", "-ffp-contract=off", "-std=c++17", "-fPIC", "-shared")
# Fibers jump between stacks; a kernel may read the same memory as different types.
OPTIONS = (*OPTIMISATION, "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", "-DFEDFEAST_EMULATED")

LAUNCHER = """
extern "C" const char* launch_NAME(const int* grid, int threads, int shared_bytes, int early_copies, const char* kinds,
                                   void** arguments) {
    return emulation::launch(NAME, grid, threads, shared_bytes, early_copies, kinds, arguments);
}
"""


@dataclass(frozen=True)
class Counts:
    """What the launches of one library did so far: multiplications of tiles, and reads of eight rows each."""

    multiplications: int
    row_groups: int
    row_group_passes: int


class Emulated:
    """The kernels of one source, for CPU tensors."""

    # Copies to shared memory arrive at once, not when they are waited for; the device may do either.
    early_copies: ClassVar[bool] = False

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def launch(
        self,
        name: str,
        grid: Grid,
        threads: int,
        shared_bytes: int,
        *args: Argument,
        early_copies: bool | None = None,
    ) -> None:
        """Run a kernel's blocks, one after another."""
        early = self.early_copies if early_copies is None else early_copies
        launcher = getattr(self._library, f"launch_{name}")
        launcher.restype = ctypes.c_char_p
        values: list[ctypes.c_void_p | ctypes.c_int | ctypes.c_float] = []
        kinds = ""
        for arg in args:
            if arg is None or isinstance(arg, torch.Tensor):
                assert arg is None or arg.device.type == "cpu"
                values.append(ctypes.c_void_p(0 if arg is None else arg.data_ptr()))
                kinds += "p"
            elif isinstance(arg, int):
                values.append(ctypes.c_int(arg))
                kinds += "i"
            else:
                values.append(ctypes.c_float(arg))
                kinds += "f"
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = (ctypes.c_int * 3)(*grid, *(1,) * (3 - len(grid)))
        expected = launcher(sizes, threads, shared_bytes, int(early), kinds.encode(), pointers)
        if expected is not None:
            raise TypeError(f"Kernel {name} takes arguments {expected.decode()!r} and was given {kinds!r}.")

    def counts(self) -> Counts:
        """What this library's launches did so far."""
        numbers = (ctypes.c_longlong * 3)()
        self._library.emulation_counts(numbers)
        return Counts(*numbers)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


class EmulatedDevice:
    """A program on a device that has products of four warps together, or on one that has not."""

    has_groups: ClassVar[bool] = True

    def __init__(self, source: Path, macros: Macros) -> None:
        self._compiled = cache(lambda groups: compile_emulated(source, {**macros, "EMULATED_GROUPS": int(groups)}))

    def function(self, name: str, shared_bytes: int, threads: int) -> Callable[[Grid, Sequence[Argument]], None]:
        """Return what launches one kernel, as a program on a GPU does."""
        return lambda grid, arguments: self._compiled(self.has_groups).launch(
            name, grid, threads, shared_bytes, *arguments
        )


def load_emulated(source_name: str, macros: Macros, device: torch.device) -> EmulatedDevice:
    """Compile a source of the package; what ``compiling.LOADERS`` takes for the CPU."""
    return EmulatedDevice(PRIMITIVES / source_name, macros)


def compile_emulated(source: Path, macros: Macros) -> Emulated:
    """The kernels of a source file; a source that was compiled before is taken from a temporary folder."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("The emulation of kernels needs g++: make compiler installs it where apt-get can.")
    command = [compiler, *OPTIONS, f"-I{source.parent}", f"-I{PRIMITIVES}", f"-I{HERE}"]
    command += [f"-D{name}={value}" for name, value in macros.items()]
    expanded = _run([*command, "-E", "-P", "-x", "c++", str(source)])
    digest = hashlib.sha256("\n".join([*command, _run([compiler, "--version"]), expanded]).encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"fedfeast-emulated-{os.getuid()}"
    library = folder / f"{source.stem}-{digest}.so"
    if not library.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            text = [f'#include "{source.resolve()}"']
            for name in dict.fromkeys(re.findall(r'extern "C" __attribute__\(\(noinline\)\) void (\w+)', expanded)):
                text.append(LAUNCHER.replace("NAME", name))
            (Path(work) / "launchers.cpp").write_text("\n".join(text))
            _run([*command, str(Path(work) / "launchers.cpp"), "-o", str(Path(work) / "kernels.so")])
            (Path(work) / "kernels.so").replace(library)
    return Emulated(library)
