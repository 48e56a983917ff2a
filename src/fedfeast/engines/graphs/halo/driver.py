"""The CUDA driver: machine code loaded and its kernels launched in PyTorch's context, on PyTorch's stream."""

import ctypes
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

Argument = Tensor | int | float | None  # a pointer for a tensor, a null pointer for None
Grid = tuple[int, int, int]

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # an attribute of functions
INVALID_CONTEXT = 201
SHARED_BYTES_WITHOUT_ASKING = 48 * 1024


@cache
def find_driver() -> ctypes.CDLL:
    """The driver's library."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"The CUDA driver was not found ({error}): kernels run on an NVIDIA GPU alone.") from error


def check(status: int) -> None:
    """Raise what the driver says of a status that is not success."""
    if status:
        text = ctypes.c_char_p()
        find_driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA driver: {(text.value or b'error %d' % status).decode()}.")


@cache
def _context_of(device_index: int) -> ctypes.c_void_p:
    """The device's primary context, which is PyTorch's."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(find_driver().cuDeviceGet(ctypes.byref(device), device_index))
    check(find_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    return context


@contextmanager
def _current_context(device_index: int) -> Iterator[None]:
    """Let this thread speak to a device, whichever it spoke to before."""
    driver = find_driver()
    check(driver.cuCtxPushCurrent_v2(_context_of(device_index)))
    try:
        yield
    finally:
        check(driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))


class LoadedCode:
    """Machine code on one device; it stays there as long as the process."""

    def __init__(self, code: bytes, device: torch.device) -> None:
        self._device_index = device.index
        self._module = ctypes.c_void_p()
        with _current_context(device.index):
            check(find_driver().cuModuleLoadData(ctypes.byref(self._module), code))

    def function(self, name: str, shared_bytes: int, threads: int) -> "Function":
        """A kernel, with the shared memory and the threads of its blocks."""
        handle = ctypes.c_void_p()
        driver = find_driver()
        with _current_context(self._device_index):
            check(driver.cuModuleGetFunction(ctypes.byref(handle), self._module, name.encode()))
            if shared_bytes > SHARED_BYTES_WITHOUT_ASKING:
                check(driver.cuFuncSetAttribute(handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes))
        return Function(handle, shared_bytes, threads, self._device_index)


class Function:
    """One kernel on one device; all its launches have arguments of the same kinds."""

    def __init__(self, handle: ctypes.c_void_p, shared_bytes: int, threads: int, device_index: int) -> None:
        self._handle = handle
        self._shared_bytes = shared_bytes
        self._threads = threads
        self._device_index = device_index
        self._arguments: PackedArguments | None = None
        self._lock = threading.Lock()  # the packed arguments are one place, read when the launch returns
        self._launch = find_driver().cuLaunchKernel
        self._stream_of = torch._C._cuda_getCurrentRawStream

    def __call__(self, grid: Grid, arguments: Sequence[Argument]) -> None:
        """Launch on the current stream of the device."""
        with self._lock:
            if self._arguments is None:
                self._arguments = PackedArguments(arguments)
            self._arguments.pack(arguments)
            status = self._launch_packed(grid, self._arguments.pointers)
            if status == INVALID_CONTEXT:  # a thread that has not spoken to the device yet
                check(find_driver().cuCtxSetCurrent(_context_of(self._device_index)))
                status = self._launch_packed(grid, self._arguments.pointers)
        if status:
            check(status)

    def _launch_packed(self, grid: Grid, pointers: ctypes.c_void_p) -> int:
        # Pointers are wrapped and numbers go as they are: declared types of arguments would double a launch's time.
        stream = ctypes.c_void_p(self._stream_of(self._device_index))
        threads, shared_bytes = self._threads, self._shared_bytes
        status: int = self._launch(self._handle, *grid, threads, 1, 1, shared_bytes, stream, pointers, None)
        return status


class PackedArguments:
    """A kernel's arguments as the driver takes them: values in a row, and a pointer to each."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        kinds = [_kind(one) for one in arguments]
        self._packing = struct.Struct("".join(kinds))
        self._are_pointers = [kind == "P" for kind in kinds]
        self._values = ctypes.create_string_buffer(self._packing.size)
        start = ctypes.addressof(self._values)
        ends = [struct.calcsize("".join(kinds[: place + 1])) for place in range(len(kinds))]
        places = [start + end - struct.calcsize(kind) for end, kind in zip(ends, kinds, strict=True)]
        self._places = (ctypes.c_void_p * len(places))(*places)
        self.pointers = ctypes.cast(self._places, ctypes.c_void_p)

    def pack(self, arguments: Sequence[Argument]) -> None:
        """Put in the values of one launch."""
        values = [
            one if not is_pointer else one.data_ptr() if one is not None else 0  # type: ignore[union-attr]
            for one, is_pointer in zip(arguments, self._are_pointers, strict=True)
        ]
        self._packing.pack_into(self._values, 0, *values)


def _kind(argument: Argument) -> str:
    """How an argument is packed, in the letters of ``struct``."""
    if argument is None or isinstance(argument, Tensor):
        return "P"
    return "f" if isinstance(argument, float) else "i"
