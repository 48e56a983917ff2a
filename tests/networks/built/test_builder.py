"""The decorator: what it takes, what it refuses, and what it asks of the data."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from own_networks import cnn
from torch import nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Builder, Member, elastic


def linear(width: int, *, classes: int, bias: bool = True) -> nn.Module:
    return nn.Linear(width, classes, bias)


def test_a_builder_is_still_the_function() -> None:
    builder = elastic(width=[2, 4])(linear)
    assert isinstance(builder(3, classes=2), nn.Linear)
    assert (builder.name, builder.asks, builder.num_members) == ("linear", ("classes", "bias"), 2)
    assert repr(builder) == "linear(width=[2, 4])"
    assert list(builder.members()) == [Member.of({"width": 2}), Member.of({"width": 4})]
    assert builder.sha256 == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def test_what_the_data_know_comes_before_a_default_and_an_option_before_both() -> None:
    builder = elastic(width=[2, 4])(linear)
    assert builder.keywords({"classes": 3, "side": 8}) == {"classes": 3}
    assert builder.keywords({"classes": 3, "bias": False}) == {"classes": 3, "bias": False}
    assert builder.with_options(classes=5).keywords({"classes": 3}) == {"classes": 5}


def test_choices_can_be_narrowed() -> None:
    assert dict(cnn.with_choices(width=[2, 3, 4]).choices) == {"width": (2, 3, 4), "hidden": (3, 6), "depth": (1, 2)}
    with pytest.raises(InvalidInput, match=r"no choice 'heads': its choices are width, hidden, depth"):
        cnn.with_choices(heads=[1, 2])
    with pytest.raises(InvalidInput, match="no option 'colour'"):
        cnn.with_options(colour=1)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "has no choice"),
        ({"width": 4}, "is no list"),
        ({"width": [4]}, "nothing to choose"),
        ({"width": [4, 2]}, "not in rising order"),
        ({"width": [2, 2, 4]}, "not in rising order"),
        ({"width": ["a", "b"]}, "no number"),
        ({"width": [True, False]}, "no number"),
        ({"width": [2, 4], "depth": [1, 2]}, "has no argument 'depth'"),
        ({"classes": [2, 4]}, "the argument 'width', which is no choice"),
    ],
)
def test_choices_that_make_no_sense_are_refused(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        elastic(**choices)(linear)


def test_a_choice_does_not_take_the_name_of_a_cache_s_column() -> None:
    with pytest.raises(InvalidInput, match="column of variant caches"):

        @elastic(macs=[1, 2])
        def taken(macs: int) -> nn.Module:
            return nn.Linear(macs, 1)


def test_a_keyword_that_the_data_do_not_know_is_refused() -> None:
    builder: Builder = elastic(width=[2, 4])(linear)
    with pytest.raises(InvalidInput, match=r"asks for 'classes', which these data do not have: they know side;"):
        builder.module(builder.smallest, {"side": 3})


def returns_a_number(width: int) -> Any:
    return width


def raises(width: int) -> nn.Module:
    raise KeyError("gone")


def says_much(width: int) -> nn.Module:
    raise RuntimeError("first\n  second")


def ends_the_program(width: int) -> nn.Module:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (returns_a_number, "returned int for width=2"),
        (raises, r"raised KeyError for width=2 \('gone'\)"),
        (says_much, r"raised RuntimeError for width=2 \(first second\): mend it"),
        (ends_the_program, r"raised SystemExit for width=2 \(0\): mend it"),
    ],
)
def test_a_builder_that_builds_nothing_is_refused(function: Any, message: str) -> None:
    builder = elastic(width=[2, 4])(function)
    with pytest.raises(InvalidInput, match=message):
        builder.module(builder.smallest, {})
