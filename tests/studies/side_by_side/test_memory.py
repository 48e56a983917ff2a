import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.studies.side_by_side.memory import (
    GIB,
    PARAMETER_BYTES,
    NoAnswer,
    allowed_memory,
    ask_free_memory,
    available_memory,
    smallest_need,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_run_needs_its_vectors_and_its_examples() -> None:
    feast = smallest_need(load_recipe("digits"), CPU)
    assert 0.4 < feast < 0.43
    synthetic = smallest_need(load_recipe("digits", {"data.name": "synthetic"}), CPU)
    assert synthetic - feast == pytest.approx((66_000 - 1_797) * 64 / GIB)


def test_a_run_needs_room_for_a_mini_batch_in_its_precision() -> None:
    def need(batch_size: int, precision: str) -> float:
        settings = {"training.batch_size": batch_size, "engine.precision": precision, "engine.name": "graphs"}
        return smallest_need(load_recipe("cifar100-paper", settings), CUDA)

    vectors = 0.6 + 55_682_916 * PARAMETER_BYTES / GIB
    assert vectors < need(2, "bfloat16") < vectors + 0.3
    one, half = (need(128, precision) - need(64, precision) for precision in ("float32", "bfloat16"))
    assert one == pytest.approx(2 * half, rel=1e-3)
    assert 0.5 < one < 2.0


def test_the_user_may_allow_less_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory() > 0.0
    monkeypatch.delenv("FEDFEAST_DEVICE_MEMORY_GIB", raising=False)
    assert allowed_memory(7.5) == 7.5
    for given, allowed in (("6", 6.0), ("80", 7.5)):
        monkeypatch.setenv("FEDFEAST_DEVICE_MEMORY_GIB", given)
        assert allowed_memory(7.5) == allowed
    for nonsense in ("much", "0", "nan"):
        monkeypatch.setenv("FEDFEAST_DEVICE_MEMORY_GIB", nonsense)
        with pytest.raises(InvalidInput, match=f"FEDFEAST_DEVICE_MEMORY_GIB = '{nonsense}' is no memory"):
            allowed_memory(7.5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_process_that_reaches_no_device_says_why() -> None:
    with pytest.raises(NoAnswer, match=r"CUDA|NVIDIA"):
        ask_free_memory({})
