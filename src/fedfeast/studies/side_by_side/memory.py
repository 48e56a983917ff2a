"""How much memory runs side by side have."""

import subprocess
from collections.abc import Mapping
from math import inf
from pathlib import Path

import torch

from fedfeast.engines.devices import require_memory
from fedfeast.studies.side_by_side.interpreter import child_variables, python_words
from fedfeast.units import GIB

# Memory is asked for and used: where MPS does not work, some calls still do.
ASK = "import torch; free = torch.cuda.mem_get_info()[0]; torch.ones(1 << 20).cuda().sum().item(); print(free)"


class NoAnswer(Exception):
    """A process of its own could not use the CUDA device; the reason is in its last line."""


def ask_free_memory(variables: Mapping[str, str]) -> float:
    """Return the free GiB of the CUDA device, asked by a process that ends: this one takes nothing of the device."""
    words = [*python_words(), "-c", ASK]
    done = subprocess.run(words, capture_output=True, text=True, env=child_variables(variables))
    if done.returncode != 0:
        raise NoAnswer(([line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"])[-1])
    return int(done.stdout) / GIB


def available_memory() -> float:
    """Return the GiB of main memory that new processes can have; without end where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return inf
    kibibytes = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(number) / 2**20 for number in kibibytes), inf)


def allowed_memory(device: torch.device, free: float) -> float:
    """Return the GiB of a device that runs may share: what is free, and no more than the user allows."""
    allowed = require_memory(device, None)
    return free if allowed is None else min(allowed, free)
