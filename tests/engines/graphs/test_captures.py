import re

import pytest
import torch

from fedfeast.engines.graphs.captures import CannotCapture, _place, capturing
from fedfeast.engines.graphs.gradient_plan import blank_for_head
from fedfeast.errors import InvalidInput


def test_the_work_and_the_reason_are_named() -> None:
    with pytest.raises(CannotCapture) as raised, capturing("the network width=8"):
        raise RuntimeError("called a synchronizing CUDA operation.\nAnd much more")
    assert str(raised.value).startswith(
        "the network width=8 cannot be captured as a CUDA graph "
        "(called a synchronizing CUDA operation, test_captures.py line "
    )
    with (
        pytest.raises(CannotCapture, match=r"the loss cannot be captured as a CUDA graph \(KeyError"),
        capturing("the loss"),
    ):
        raise KeyError


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), InvalidInput("no such thing"), CannotCapture("it")])
def test_what_has_a_meaning_of_its_own_keeps_it(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), capturing("the network"):
        raise error


def test_without_code_of_a_user_the_place_is_the_package_s_own() -> None:
    with pytest.raises(IndexError) as raised:
        blank_for_head(torch.empty(1))
    assert re.fullmatch(r", gradient_plan\.py line \d+", _place(raised.value))
