import pytest
import torch

from fedfeast.engines.devices import MEMORY_VARIABLE
from fedfeast.errors import InvalidInput
from fedfeast.studies.side_by_side.memory import NoAnswer, allowed_memory, ask_free_memory, available_memory

CPU = torch.device("cpu")


def test_the_user_may_allow_less_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory() > 0.0
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    assert allowed_memory(CPU, 7.5) == 7.5
    for given, allowed in (("6", 6.0), ("80", 7.5)):
        monkeypatch.setenv(MEMORY_VARIABLE, given)
        assert allowed_memory(CPU, 7.5) == allowed
    for nonsense, said in (("much", "'much'"), ("0", "0"), ("nan", "nan")):
        monkeypatch.setenv(MEMORY_VARIABLE, nonsense)
        with pytest.raises(InvalidInput, match=rf"\${MEMORY_VARIABLE} = {said}: give the GiB of device memory"):
            allowed_memory(CPU, 7.5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_process_that_reaches_no_device_says_why() -> None:
    with pytest.raises(NoAnswer, match=r"CUDA|NVIDIA"):
        ask_free_memory({})
