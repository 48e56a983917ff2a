"""What clients tell of their own examples: sums that cannot be, whatever the examples are, are named."""

import math

import torch
from torch import Tensor

from fedfeast.data import DatasetFacts

MOST_NATS = 1e4  # a symbol: no network in use is so wrong
MOST_BLIND_NATS = 25  # a symbol, of 7e10 that are alike
SLACK = 1 + 1e-9  # sums are of floating-point numbers


def find_totals_fault(told: Tensor, examples: int, facts: DatasetFacts) -> str | None:
    """Say what cannot be about a client's totals, (networks, sums), over so many examples; None where all can be."""
    widths = {"classification": 2, "next-token": 4, "multi-label": 5, "regression": 4 + facts.classes}
    if told.dim() != 2 or told.shape[1] != widths[facts.task]:
        return f"its totals have shape {tuple(told.shape)} where {facts.task} has {widths[facts.task]} sums"
    if not bool(torch.isfinite(told).all()):
        return "its totals are not finite"
    fault = {
        "classification": _fault_of_classes,
        "next-token": _fault_of_tokens,
        "multi-label": _fault_of_labels,
        "regression": _fault_of_numbers,
    }[facts.task](told.double(), examples, facts)
    return None if fault is None else f"its totals cannot be: {fault}"


def _fault_of_classes(told: Tensor, examples: int, facts: DatasetFacts) -> str | None:
    right, count = told.unbind(dim=1)
    return _first(
        ("it counts other examples than it keeps back", (count != examples).any()),
        ("more is right than there is", _outside(right, count)),
        ("it counts in fractions", _fractions(right)),
    )


def _fault_of_tokens(told: Tensor, examples: int, facts: DatasetFacts) -> str | None:
    nats, right, count, blind = told.unbind(dim=1)
    most = examples * math.prod(facts.label_shape)
    return _first(
        ("it counts more symbols than it keeps back", (count > most).any() | (count < 0).any()),
        ("its networks were measured on different symbols", _differ(count)),
        ("more is right than there is", _outside(right, count)),
        ("it counts in fractions", _fractions(told[:, 1:3])),
        (f"it loses more than {MOST_NATS:.0f} nats a symbol", _outside(nats, MOST_NATS * count)),
        ("its blind guess is none", _differ(blind) | _outside(blind, MOST_BLIND_NATS * count)),
    )


def _fault_of_labels(told: Tensor, examples: int, facts: DatasetFacts) -> str | None:
    both, said, there, exact, count = told.unbind(dim=1)
    most = torch.full_like(said, examples * facts.classes)
    return _first(
        ("it counts other examples than it keeps back", (count != examples).any()),
        ("more is right than there is", _outside(exact, count) | _outside(both, torch.minimum(said, there))),
        ("it counts more labels than there are", _outside(said, most) | _outside(there, most)),
        ("its networks were measured on different labels", _differ(there)),
        ("it counts in fractions", _fractions(told)),
    )


def _fault_of_numbers(told: Tensor, examples: int, facts: DatasetFacts) -> str | None:
    squared, absolute, squares, count = told[:, :4].unbind(dim=1)
    labels = told[:, 4:]
    return _first(
        ("it counts other numbers than it keeps back", (count != examples * facts.classes).any()),
        ("sums of squares are negative", (squared < 0).any() | (squares < 0).any() | (absolute < 0).any()),
        ("its absolute errors are larger than its squared ones allow", (absolute**2 > SLACK * squared * count).any()),
        ("its labels are larger than their squares allow", (labels.square().sum(1) > SLACK * squares * examples).any()),
        ("its networks were measured on different labels", _differ(squares) | _differ(labels)),
    )


def _first(*faults: tuple[str, Tensor]) -> str | None:
    return next((words for words, holds in faults if bool(holds)), None)


def _outside(values: Tensor, most: Tensor) -> Tensor:
    return (values < 0).any() | (values > SLACK * most).any()


def _fractions(values: Tensor) -> Tensor:
    return (values != values.round()).any()


def _differ(values: Tensor) -> Tensor:
    return (values != values[:1]).any()
