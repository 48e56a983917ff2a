import pytest
import torch
from engines.graphs.halo.emulated import Emulated, EmulatedDevice, load_emulated

from fedfeast.engines.graphs.halo import compiling


@pytest.fixture(params=["copies wait", "copies at once", "warps alone"])
def emulated_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on CPU tensors run in the emulation: copies as late or early as a device may make them, warps alone."""
    if torch.cuda.is_available() and request.param != "copies wait":
        pytest.skip("tensors are on the GPU, which does as it does")
    monkeypatch.setitem(compiling.LOADERS, "cpu", load_emulated)
    monkeypatch.setattr(Emulated, "early_copies", request.param == "copies at once")
    monkeypatch.setattr(EmulatedDevice, "has_groups", request.param != "warps alone")
