"""Which device, engine and precision a training takes, given what was asked for."""

import os
from math import isfinite

import torch

from fedfeast.engines.graphs.context import has_fused_kernels
from fedfeast.errors import InvalidInput
from fedfeast.units import GIB

MEMORY_VARIABLE = "FEDFEAST_DEVICE_MEMORY_GIB"  # what beside other processes is left for this one


def choose_device(wanted: str) -> torch.device:
    """Return CUDA where there is one and it is not cpu that is wanted; a run may be evaluated on another machine."""
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def require_device(wanted: str) -> torch.device:
    """Return the device to train on; whoever asks for CUDA gets nothing less."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("engine.device = 'cuda', but this machine has no CUDA device: set engine.device=cpu.")
    return choose_device(wanted)


def choose_engine(wanted: str, precision: str, device: torch.device, own_network: bool = False) -> tuple[str, str]:
    """Return the names of the engine and the precision that train on a device; what does not go together is refused."""
    name = wanted
    if name == "auto":
        name = "graphs" if has_fused_kernels(device) else "eager"
    if name == "graphs" and device.type != "cuda":
        raise InvalidInput(
            "engine.name = 'graphs' needs a CUDA device, and training is on the CPU: set engine.name=eager."
        )
    if name == "eager" and precision == "bfloat16":
        raise InvalidInput(
            "engine.precision = 'bfloat16' is known to the graph engine alone: set engine.precision=float32."
        )
    if precision == "auto":
        # Choice: what bfloat16 does to a user's own network nobody has measured, so that it is for the user to ask for.
        precision = "bfloat16" if name == "graphs" and not own_network else "float32"
    return name, precision


def require_memory(device: torch.device, gibibytes: float | None) -> float | None:
    """Return the GiB of device memory to keep within, the less of recipe and environment; None without a limit."""
    limits = {} if gibibytes is None else {"engine.memory_gib": gibibytes}
    if os.environ.get(MEMORY_VARIABLE):
        limits[f"${MEMORY_VARIABLE}"] = _parse_limit(os.environ[MEMORY_VARIABLE])
    for name, value in limits.items():
        if not value > 0 or not isfinite(value):
            raise InvalidInput(f"{name} = {value:g}: give the GiB of device memory to take at most, a number above 0.")
        size = memory_of(device) / GIB if device.type == "cuda" else value
        if value > size:
            raise InvalidInput(f"{name} = {value:g}, but the device has {size:.2f} GiB: give at most that, or none.")
    return min(limits.values(), default=None)


def limit_memory(device: torch.device, gibibytes: float | None) -> None:
    """Keep this process within so much of a CUDA device's memory, and within what the environment leaves it."""
    limit = require_memory(device, gibibytes)
    if limit is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(limit * GIB / memory_of(device), _index(device))


def memory_of(device: torch.device) -> int:
    """Return the bytes of memory of a CUDA device."""
    return int(torch.cuda.get_device_properties(_index(device)).total_memory)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _parse_limit(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"${MEMORY_VARIABLE} = {text!r}: give the GiB of device memory, a number.") from None
