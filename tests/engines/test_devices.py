import pytest
import torch

from fedfeast.engines.devices import choose_device, choose_engine, require_device
from fedfeast.errors import InvalidInput

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize(
    ("has_kernels", "asked", "chosen"),
    [
        (True, ("auto", "auto"), ("graphs", "bfloat16")),
        (False, ("auto", "auto"), ("eager", "float32")),
        (True, ("auto", "float64"), ("graphs", "float64")),
        (True, ("eager", "auto"), ("eager", "float32")),
    ],
)
def test_the_engine_is_the_devices_own_unless_named(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool, asked: tuple[str, str], chosen: tuple[str, str]
) -> None:
    monkeypatch.setattr("fedfeast.engines.devices.has_fused_kernels", lambda device: has_kernels)
    assert choose_engine(*asked, CUDA) == chosen


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"engine.name = 'graphs' needs a CUDA device"):
        choose_engine("graphs", "auto", CPU)
    with pytest.raises(InvalidInput, match=r"engine.precision = 'bfloat16' is known to the graph engine alone"):
        choose_engine("eager", "bfloat16", CPU)


def test_who_asks_for_cuda_gets_nothing_less_but_may_look_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert require_device("auto") == require_device("cpu") == choose_device("cuda") == CPU
    with pytest.raises(InvalidInput, match=r"engine.device = 'cuda', but this machine has no CUDA device"):
        require_device("cuda")


def test_a_network_of_ones_own_is_rounded_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.engines.devices.has_fused_kernels", lambda device: True)
    assert choose_engine("auto", "auto", CUDA, own_network=True) == ("graphs", "float32")
    assert choose_engine("auto", "bfloat16", CUDA, own_network=True) == ("graphs", "bfloat16")
