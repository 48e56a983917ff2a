"""Which device, engine and precision a training takes, given what was asked for."""

import torch

from fedfeast.engines.graphs.context import has_fused_kernels
from fedfeast.errors import InvalidInput


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
