import math

import pytest
import torch
from torch import Tensor

from fedfeast.data.tasks import ACCURACY, CLASSIFICATION, NOWHERE, TASKS, Metric, Task, task_named
from fedfeast.errors import InvalidInput

TEXT, LABELS, NUMBERS = (task_named(name) for name in ("next-token", "multi-label", "regression"))


def logits(*shares: list[float]) -> Tensor:
    return torch.tensor(shares, dtype=torch.float64).log()


# Two texts of two symbols out of four; the last place of the second counts nowhere.
TEXT_OUTPUTS = torch.stack(
    (logits([0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]), logits(*[[0.1, 0.2, 0.3, 0.4]] * 2))
)
TEXT_LABELS = torch.tensor([[0, 3], [2, NOWHERE]])
LABEL_OUTPUTS = torch.tensor([[2.0, -1.0, 3.0], [-1.0, -2.0, 0.5], [-1.0, -1.0, -1.0]])
LABEL_LABELS = torch.tensor([[1, 0, 1], [1, 0, 1], [0, 0, 0]], dtype=torch.uint8)
# Two dimensions far apart: each has a mean of its own.
NUMBER_LABELS = torch.tensor([[0.0, 100.0], [2.0, 104.0]])
NUMBER_OUTPUTS = NUMBER_LABELS + torch.tensor([[1.0, 0.0], [0.0, -2.0]])


def figures(task: Task, outputs: Tensor, labels: Tensor) -> dict[str, float]:
    return task.figures(task.totals(outputs, labels).sum(dim=0))


def test_classes() -> None:
    outputs, labels = torch.tensor([[0.0, 1.0], [3.0, 1.0], [0.0, 2.0]]), torch.tensor([1, 0, 0])
    assert figures(CLASSIFICATION, outputs, labels) == {"accuracy": 2 / 3}
    assert CLASSIFICATION.metric is ACCURACY
    expected = -torch.log_softmax(outputs, dim=1)[torch.arange(3), labels].mean()
    torch.testing.assert_close(CLASSIFICATION.loss(outputs, labels), expected)


def test_next_symbols() -> None:
    measured = figures(TEXT, TEXT_OUTPUTS, TEXT_LABELS)
    nats = (math.log(2) + math.log(4) - math.log(0.3)) / 3
    assert list(measured) == ["bits", "accuracy", "perplexity"]
    assert measured["bits"] == pytest.approx(nats / math.log(2))
    assert measured["accuracy"] == pytest.approx(1 / 3)
    assert measured["perplexity"] == pytest.approx(math.exp(nats))
    assert float(TEXT.loss(TEXT_OUTPUTS, TEXT_LABELS)) == pytest.approx(nats)
    assert float(TEXT.loss(TEXT_OUTPUTS, torch.full_like(TEXT_LABELS, -1))) == 0, "and not what no number is"
    hopeless = TEXT_OUTPUTS + 1e5 * torch.nn.functional.one_hot(torch.tensor([[1, 1], [1, 1]]), 4)
    assert math.isfinite(figures(TEXT, hopeless, TEXT_LABELS)["perplexity"])


def test_several_labels() -> None:
    measured = figures(LABELS, LABEL_OUTPUTS, LABEL_LABELS)
    assert measured == {"f1": 2 * 3 / (3 + 4), "exact": 2 / 3}
    silent = figures(LABELS, -torch.ones(2, 3), torch.zeros(2, 3))
    assert silent == {"f1": 1.0, "exact": 1.0}


def test_numbers() -> None:
    measured = figures(NUMBERS, NUMBER_OUTPUTS, NUMBER_LABELS)
    assert measured["rmse"] == pytest.approx((5 / 4) ** 0.5)
    assert measured["mae"] == pytest.approx(3 / 4)
    assert measured["r2"] == pytest.approx(1 - 5 / (2 + 8)), "each dimension about its own mean"
    assert figures(NUMBERS, torch.ones(2, 1), torch.ones(2, 1))["r2"] == 0.0
    assert float(NUMBERS.loss(NUMBER_OUTPUTS, NUMBER_LABELS)) == pytest.approx(5 / 4)


@pytest.mark.parametrize(
    ("task", "outputs", "labels", "expected"),
    [
        (CLASSIFICATION, torch.eye(2), torch.tensor([0, 0]), {"accuracy": 0.0}),
        (TEXT, TEXT_OUTPUTS, TEXT_LABELS, {"bits": 2.0, "accuracy": 0.0, "perplexity": 4.0}),
        (LABELS, LABEL_OUTPUTS, LABEL_LABELS, {"f1": 0.0, "exact": 0.0}),
        (NUMBERS, NUMBER_OUTPUTS, NUMBER_LABELS, {"rmse": 2.5**0.5, "mae": 2.5**0.5, "r2": 0.0}),
    ],
)
def test_who_has_no_network(task: Task, outputs: Tensor, labels: Tensor, expected: dict[str, float]) -> None:
    assert task.without_network(task.totals(outputs, labels).sum(dim=0)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "outputs", "labels"),
    [
        (TEXT, TEXT_OUTPUTS, TEXT_LABELS),
        (LABELS, LABEL_OUTPUTS, LABEL_LABELS),
        (NUMBERS, NUMBER_OUTPUTS, NUMBER_LABELS),
    ],
)
def test_sums_add_up_over_batches(task: Task, outputs: Tensor, labels: Tensor) -> None:
    parts = [task.totals(outputs[:1], labels[:1]), task.totals(outputs[1:], labels[1:])]
    assert torch.equal(torch.cat(parts), task.totals(outputs, labels))
    assert parts[0].dtype == torch.float64


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_without_examples_figures_are_finite(task: Task) -> None:
    sums = torch.zeros(5 if task in (LABELS, NUMBERS) else 4 if task is TEXT else 2, dtype=torch.float64)
    assert list(task.figures(sums)) == [metric.name for metric in task.metrics]
    assert all(map(math.isfinite, [*task.figures(sums).values(), *task.without_network(sums).values()]))


@pytest.mark.parametrize(
    ("task", "outputs"), [(CLASSIFICATION, NUMBER_OUTPUTS), (TEXT, TEXT_OUTPUTS), (LABELS, LABEL_OUTPUTS)]
)
def test_a_student_that_says_what_its_teacher_said_loses_least(task: Task, outputs: Tensor) -> None:
    soft, labels = task.soften(outputs), torch.zeros(outputs.shape[:-1], dtype=torch.int64)
    same, other = (float(task.distillation_loss(one, soft, labels)) for one in (outputs, outputs.flip(-1)))
    assert same < other
    assert NUMBERS.distillation_loss(NUMBER_OUTPUTS, NUMBERS.soften(NUMBER_OUTPUTS), labels) == 0


def test_a_teacher_tells_nothing_where_nothing_counts() -> None:
    outputs, soft = torch.randn(2, 3, 5), torch.randn(2, 3, 5).softmax(dim=2)
    labels = torch.tensor([[1, 2, -1], [-1, -1, -1]])
    first_two = torch.nn.functional.cross_entropy(outputs[0, :2], soft[0, :2])
    torch.testing.assert_close(TEXT.distillation_loss(outputs, soft, labels), first_two)
    assert TEXT.distillation_loss(outputs, soft, torch.full((2, 3), -1)) == 0


def test_metrics_know_their_direction_and_how_they_are_shown() -> None:
    bits = TEXT.metric
    assert (bits.name, bits.title, bits.more_is_better) == ("bits", "bits per symbol", False)
    assert (bits.show(2.34567), bits.show(2.34567, 0.0123)) == ("2.346", "2.346 \N{PLUS-MINUS SIGN} 0.012")
    assert (ACCURACY.show(0.5), ACCURACY.show(0.5, 0.01, 1)) == ("50.00 %", "50.0 \N{PLUS-MINUS SIGN} 1.0 %")
    assert bits.merit(2.0) > bits.merit(3.0)
    assert ACCURACY.merit(0.3) > ACCURACY.merit(0.2)
    for metric in (metric for task in TASKS.values() for metric in task.metrics):
        assert Metric.read(metric.facts()) == metric


def test_names_that_nobody_has() -> None:
    with pytest.raises(InvalidInput, match="'ranking' is no task: choose one of classification"):
        task_named("ranking")
    with pytest.raises(InvalidInput, match="the task next-token has no metric 'rmse': choose one of bits"):
        TEXT.metric_named("rmse")
