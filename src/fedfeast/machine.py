"""Facts about this machine: processor, cores, device."""

import ipaddress
import os
import platform
import sys
from pathlib import Path


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory_megabytes() -> float | None:
    """Return the most memory that this process held; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3  # bytes there, kilobytes elsewhere


def processor_name() -> str:
    """Return the processor's name, or its kind where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def processor_and_cores() -> str:
    """Return what a latency measured on this machine's processor belongs to."""
    return f"{processor_name()}, {os.cpu_count()} cores"


def device_name(kind: str) -> str:
    """Return a CUDA device's own name; of another device its kind, e.g. cpu."""
    if kind != "cuda":
        return kind
    import torch

    return torch.cuda.get_device_name()


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
