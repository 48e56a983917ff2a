import math
from math import nan

import pytest
import torch

from fedfeast.data import DatasetFacts
from fedfeast.data.tasks import task_named
from fedfeast.evaluation.told_totals import find_totals_fault

CLASSES = DatasetFacts(3, 1, 8, 0, 0)
TOKENS = DatasetFacts(5, 1, 4, 0, 0, kind="tokens", task="next-token", shape=(4,), vocabulary=5)
LABELS = DatasetFacts(2, 2, 4, 0, 0, kind="numbers", task="multi-label", shape=(2, 4))
TARGETS = DatasetFacts(2, 2, 4, 0, 0, kind="numbers", task="regression", shape=(2, 4))
BLIND = math.log(5)


@pytest.mark.parametrize("facts", [CLASSES, TOKENS, LABELS, TARGETS], ids=lambda facts: facts.task)
def test_honest_totals_have_no_fault(facts: DatasetFacts) -> None:
    draw = torch.Generator().manual_seed(0)
    labels = {
        "classification": torch.randint(3, (6,), generator=draw),
        "next-token": torch.randint(-1, 5, (6, 4), generator=draw),
        "multi-label": torch.randint(2, (6, 2), generator=draw).to(torch.uint8),
        "regression": torch.randn(6, 2, generator=draw),
    }[facts.task]
    shape = {"classification": (6, 3), "next-token": (6, 4, 5)}.get(facts.task, (6, 2))
    outputs = [torch.randn(shape, generator=draw) for _ in range(3)]
    told = torch.stack([task_named(facts.task).totals(one, labels).sum(dim=0) for one in outputs])
    assert find_totals_fault(told, 6, facts) is None
    assert find_totals_fault(told, 4, facts) is not None


@pytest.mark.parametrize(
    ("facts", "told", "fault"),
    [
        (CLASSES, [[7, 6]], "more is right than there is"),
        (CLASSES, [[-1, 6]], "more is right than there is"),
        (CLASSES, [[2.5, 6]], "it counts in fractions"),
        (CLASSES, [[1, 7]], "it counts other examples than it keeps back"),
        (CLASSES, [[1, 6, 0]], "its totals have shape"),
        (CLASSES, [[nan, 6]], "not finite"),
        (TOKENS, [[1, 1, 25, 25 * BLIND]], "more symbols than it keeps back"),
        (TOKENS, [[1, 1, 4, 4 * BLIND], [1, 1, 5, 5 * BLIND]], "measured on different symbols"),
        (TOKENS, [[1e9, 1, 4, 4 * BLIND]], "it loses more than 10000 nats a symbol"),
        (TOKENS, [[-1, 1, 4, 4 * BLIND]], "it loses more than"),
        (TOKENS, [[1, 1, 4, 400]], "its blind guess is none"),
        (TOKENS, [[1, 1, 4, 4], [1, 1, 4, 5]], "its blind guess is none"),
        (LABELS, [[3, 2, 4, 1, 6]], "more is right than there is"),
        (LABELS, [[3, 13, 4, 1, 6]], "more labels than there are"),
        (LABELS, [[1, 2, 4, 1, 6], [1, 2, 3, 1, 6]], "different labels"),
        (TARGETS, [[1, 9, 4, 12, 1, 1]], "absolute errors are larger"),
        (TARGETS, [[1, 1, 4, 12, 9, 9]], "labels are larger than their squares allow"),
        (TARGETS, [[-1, 0, 4, 12, 1, 1]], "negative"),
        (TARGETS, [[1, 1, 4, 12, 1, 1], [1, 1, 5, 12, 1, 1]], "different labels"),
    ],
)
def test_what_cannot_be_is_named(facts: DatasetFacts, told: list[list[float]], fault: str) -> None:
    assert fault in str(find_totals_fault(torch.tensor(told, dtype=torch.float64), 6, facts))
