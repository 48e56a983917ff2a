"""NVIDIA's compiler as a library: CUDA C++ to a device's machine code, kept in the user's cache folder."""

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from fedfeast.whole_files import write_bytes

Macros = Mapping[str, int | str]

# Without fast mathematics: a division is a division.
OPTIONS = ("-default-device", "--std=c++17")
DIGEST_BYTES = hashlib.sha256().digest_size


def cached_machine_code(
    source: str, name: str, headers: Mapping[str, str], macros: Macros, capability: tuple[int, int]
) -> bytes:
    """Return a source's machine code (a cubin), compiled unless the cache folder has it whole.

    The headers are the texts that it may include, by name; the capability is the device's (9, 0 for an H100).
    """
    compiler = find_compiler()
    # Products of four warps together are compiled for that one architecture alone.
    suffix = "a" if capability == (9, 0) else ""
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}{suffix}", *OPTIONS]
    options += [f"-D{macro}={value}" for macro, value in sorted(macros.items())]
    parts = [version(compiler), name, source, *options, *(text for one in sorted(headers.items()) for text in one)]
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    path = cache_folder() / f"{Path(name).stem}-{key[:32]}.cubin"
    code = _read(path)
    if code is None:
        code = machine_code(compiler, source, name, headers, options)
        # Where nothing can be kept, the next process compiles again.
        with suppress(OSError):
            _keep(path, code)
    return code


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedfeast" / "kernels"


def _read(path: Path) -> bytes | None:
    """The machine code in a file that begins with its digest; None where it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(path: Path, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may compile the same at once: each writes a file of its own, and the last one's stays.
    own = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    write_bytes(own, hashlib.sha256(code).digest() + code)
    own.replace(path)


def machine_code(
    compiler: ctypes.CDLL, source: str, name: str, headers: Mapping[str, str], options: list[str]
) -> bytes:
    """Compile a source; what it gets wrong is said in the compiler's own words."""
    program = ctypes.c_void_p()
    texts = [text.encode() for text in headers.values()]
    names = [header.encode() for header in headers]
    _check(
        compiler,
        compiler.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), len(texts), _strings(texts), _strings(names)
        ),
    )
    try:
        encoded = [option.encode() for option in options]
        if compiler.nvrtcCompileProgram(program, len(encoded), _strings(encoded)):
            message = _output(compiler, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            raise RuntimeError(f"{name} does not compile with {' '.join(options)}:\n{message}")
        return _output(compiler, "CUBIN", program)
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*texts)


def _output(compiler: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    """Ask for the log or the machine code of a program, after its size."""
    size = ctypes.c_size_t()
    _check(compiler, compiler[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(compiler, compiler[f"nvrtcGet{what}"](program, content))
    return content.raw


def _check(compiler: ctypes.CDLL, status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC: {compiler.nvrtcGetErrorString(status).decode()}.")


def version(compiler: ctypes.CDLL) -> str:
    """The compiler's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(compiler, compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def has_compiler() -> bool:
    """Return whether kernels can be compiled here."""
    try:
        find_compiler()
    except RuntimeError:
        return False
    return True


@cache
def find_compiler() -> ctypes.CDLL:
    """NVRTC, as it comes with PyTorch or with the system."""
    for place in _places():
        with suppress(OSError):
            compiler = ctypes.CDLL(place)
            compiler.nvrtcGetErrorString.restype = ctypes.c_char_p
            return compiler
    raise RuntimeError(
        "NVRTC, which compiles kernels for the GPU, was not found: install it with pip install nvidia-cuda-nvrtc."
    )


def _places() -> Iterator[str]:
    """Where NVRTC may lie: packages beside PyTorch, PyTorch itself, wherever the system looks."""
    major = (torch.version.cuda or "").partition(".")[0]
    folders = [path for entry in sys.path if entry for path in sorted(Path(entry).glob("nvidia/*/lib"))]
    found = [path for folder in [*folders, Path(torch.__file__).parent / "lib"] for path in _libraries(folder)]
    # The driver is sure to load what its own major version of CUDA compiled, and PyTorch is made for that one.
    yield from map(str, sorted(found, key=lambda path: f".so.{major}." not in f"{path.name}."))
    yield from (f"libnvrtc.so.{number}" for number in ([major] if major else ["13", "12"]))
    yield "libnvrtc.so"


def _libraries(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("libnvrtc*.so*"))
    return [path for path in paths if "builtins" not in path.name and ".alt." not in path.name]
