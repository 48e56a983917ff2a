import pytest
import torch

from fedfeast.engines.devices import (
    MEMORY_VARIABLE,
    choose_device,
    choose_engine,
    limit_memory,
    require_device,
    require_memory,
)
from fedfeast.errors import InvalidInput
from fedfeast.units import GIB

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


def test_memory_is_limited_by_recipe_and_environment_and_the_less_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[float, int]] = []
    monkeypatch.setattr("fedfeast.engines.devices.memory_of", lambda device: 24 * GIB)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: set_to.append(given))
    limit_memory(CUDA, None)
    limit_memory(CPU, 4.0)
    assert set_to == []
    limit_memory(CUDA, 12.0)
    monkeypatch.setenv(MEMORY_VARIABLE, "6")
    limit_memory(CUDA, 12.0)
    limit_memory(torch.device("cuda:0"), 3.0)
    limit_memory(CUDA, None)
    assert set_to == [(0.5, 1), (0.25, 1), (0.125, 0), (0.25, 1)]


@pytest.mark.parametrize(
    ("recipe", "environment", "sentence"),
    [
        (25.0, "", r"engine.memory_gib = 25, but the device has 24.00 GiB: give at most that"),
        (None, "80", r"\$FEDFEAST_DEVICE_MEMORY_GIB = 80, but the device has 24.00 GiB"),
        (12.0, "-1", r"\$FEDFEAST_DEVICE_MEMORY_GIB = -1: .* a number above 0"),
        (12.0, "nan", r"\$FEDFEAST_DEVICE_MEMORY_GIB = nan: .* a number above 0"),
        (None, "much", r"\$FEDFEAST_DEVICE_MEMORY_GIB = 'much': give the GiB"),
        (0.0, "", r"engine.memory_gib = 0: give the GiB"),
    ],
)
def test_limits_that_make_no_sense_are_refused(
    monkeypatch: pytest.MonkeyPatch, recipe: float | None, environment: str, sentence: str
) -> None:
    monkeypatch.setattr("fedfeast.engines.devices.memory_of", lambda device: 24 * GIB)
    monkeypatch.setenv(MEMORY_VARIABLE, environment)
    with pytest.raises(InvalidInput, match=sentence):
        require_memory(CUDA, recipe)
