import pytest
from engines.graphs.halo.emulated import Emulated, load_emulated

from fedfeast.engines.graphs.halo import compiling


@pytest.fixture(params=[False, True], ids=["copies wait", "copies at once"])
def emulated_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on CPU tensors run in the emulation, with copies as late and as early as the device may make them."""
    monkeypatch.setitem(compiling.LOADERS, "cpu", load_emulated)
    monkeypatch.setattr(Emulated, "early_copies", request.param)
