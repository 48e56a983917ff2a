import math

import pytest
import torch

from fedfeast.federation.aggregation.refusals import (
    REMEMBERED_ROUNDS,
    NormHistory,
    Refusal,
    find_count_fault,
    find_form_fault,
    find_norm_fault,
    norm_of,
)

SENT = {"stem": torch.zeros(2, 3), "head": torch.zeros(4)}


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        ({"stem": torch.ones(2, 3), "head": torch.ones(4)}, None),
        ({"stem": torch.ones(2, 3)}, "tensor head is missing (1 of 2)"),
        ({**SENT, "extra": torch.ones(1)}, "tensor extra was never sent (1 such)"),
        ({**SENT, "head": torch.ones(2, 2)}, "tensor head has shape (2, 2) in place of (4,)"),
        ({**SENT, "head": torch.ones(4).half()}, "tensor head is of float16 in place of float32"),
    ],
)
def test_a_reply_has_the_form_of_what_was_sent(returned: dict[str, torch.Tensor], fault: str | None) -> None:
    assert find_form_fault(SENT, returned) == fault


def test_no_more_examples_than_declared_and_at_least_one() -> None:
    assert find_count_fault(5, 5) is None
    assert find_count_fault(6, 5) == "it claims 6 examples and declared 5"
    assert find_count_fault(0, 5) is not None
    assert find_count_fault(-1, 5) is not None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_counted(odd: float) -> None:
    change = torch.tensor([1.0, odd, 2.0, odd])
    assert find_norm_fault(change, norm_of(change), None) == "2 of 4 values are not finite"


def test_a_norm_above_the_bound_is_a_fault_and_one_at_it_is_none() -> None:
    change = torch.tensor([3.0, 4.0])
    assert norm_of(change) == 5.0
    assert find_norm_fault(change, 5.0, 5.0) is None
    assert find_norm_fault(change, 5.0, None) is None
    assert find_norm_fault(change, 5.0, 4.5) == "its change has norm 5, above the bound of 4.5"


def test_large_finite_values_have_a_norm() -> None:
    change = torch.full((4,), 1e30)
    assert norm_of(change) == pytest.approx(2e30)


def test_the_history_is_a_value_of_the_last_rounds_medians() -> None:
    empty = NormHistory()
    assert empty.typical is None
    assert empty.times(3.0) is None
    one = empty.after([1.0, 2.0, 9.0])
    assert (one.medians, empty.medians) == ((2.0,), ())
    assert one.times(3.0) == 6.0
    assert one.times(None) is None
    assert one.after([]) == one
    assert one.after([0.0, 0.0]) == one
    long = one
    for value in range(1, 50):
        long = long.after([float(value)])
    assert long.medians == tuple(float(value) for value in range(50 - REMEMBERED_ROUNDS, 50))


def test_a_refusal_names_the_client_and_the_reason() -> None:
    assert str(Refusal("node-7", "tensor a is missing")) == (
        "the reply of client node-7 was refused: tensor a is missing"
    )
