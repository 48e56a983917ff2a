"""What is learnt: the loss of a task, what a teacher passes on, and the metrics by which a network is judged."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.errors import InvalidInput

NOWHERE = -1  # a label that counts nowhere: the padding behind a short text


@dataclass(frozen=True)
class Metric:
    """A figure by which networks are judged."""

    name: str
    more_is_better: bool
    is_share: bool = False  # from 0 to 1, and shown in percent
    label: str = ""  # in words, where the name is short

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "Metric":
        """Return the metric that a file describes."""
        name, label = facts["name"], facts.get("label", "")
        return cls(name, facts["more_is_better"], facts["unit"] == "%", label if label != name else "")

    def facts(self) -> dict[str, Any]:
        """Return the metric as files and answers describe it."""
        unit = self.unit.strip()
        return {"name": self.name, "label": self.title, "more_is_better": self.more_is_better, "unit": unit}

    @property
    def title(self) -> str:
        """What the metric is called before people."""
        return self.label or self.name

    @property
    def unit(self) -> str:
        """What stands behind a shown figure."""
        return " %" if self.is_share else ""

    def shown(self, value: float) -> float:
        """Return the figure as people read it: shares in percent."""
        return 100 * value if self.is_share else value

    def show(self, value: float, error: float | None = None, digits: int = 2) -> str:
        """Return the figure with its unit, and its standard error where there is one; shares with so many digits."""
        number = f"{self.shown(value):.{digits}f}" if self.is_share else f"{value:.4g}"
        if error is not None:
            spread = f"{self.shown(error):.{digits}f}" if self.is_share else f"{error:.2g}"
            number += f" \N{PLUS-MINUS SIGN} {spread}"
        return number + self.unit

    def named(self, value: float) -> str:
        """Return the figure, rounded, after its name; an accuracy needs none."""
        rounded = self.show(value, digits=1)
        return rounded if self.name == "accuracy" else f"{self.title} {rounded}"

    def merit(self, value: float) -> float:
        """Return a number that is greater for what is better."""
        return value if self.more_is_better else -value


ACCURACY = Metric("accuracy", more_is_better=True, is_share=True)


class Task(ABC):
    """What the labels are, and how outputs are measured against them."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]  # the first one scores

    @property
    def metric(self) -> Metric:
        """The metric of curves and scores."""
        return self.metrics[0]

    def metric_named(self, name: str) -> Metric:
        """Return one of the task's metrics."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        known = ", ".join(metric.name for metric in self.metrics)
        raise InvalidInput(f"the task {self.name} has no metric {name!r}: choose one of {known}.")

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a mini-batch."""

    @abstractmethod
    def soften(self, outputs: Tensor) -> Tensor:
        """Return what a teacher's outputs tell its students."""

    @abstractmethod
    def distillation_loss(self, outputs: Tensor, soft: Tensor, labels: Tensor) -> Tensor:
        """Return a student's mean loss against what its teacher told; the labels say which positions count."""

    @abstractmethod
    def totals(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return, example by example, the sums in float64 from which figures are made: (examples, sums)."""

    @abstractmethod
    def figures(self, totals: Tensor) -> dict[str, float]:
        """Return every metric from added-up sums."""

    def without_network(self, totals: Tensor) -> dict[str, float]:
        """Return every metric of somebody who has no network at all, from the sums of the same examples."""
        # Choice: nothing is right without a network; what has no worst value takes an answer that needs none (024).
        return {metric.name: 0.0 for metric in self.metrics}


class Classification(Task):
    """One class of several; outputs are logits (batch, classes)."""

    name = "classification"
    metrics = (ACCURACY,)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return F.nll_loss(F.log_softmax(outputs, dim=1), labels)

    def soften(self, outputs: Tensor) -> Tensor:
        """Return the probabilities."""
        return outputs.softmax(dim=1)

    def distillation_loss(self, outputs: Tensor, soft: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy against the teacher's probabilities (L_KD of Eq. 9)."""
        return F.cross_entropy(outputs, soft)

    def totals(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return whether an example is right, and one."""
        right = (outputs.argmax(dim=1) == labels).double()
        return torch.stack((right, torch.ones_like(right)), dim=1)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Return the share of examples that are right."""
        right, count = totals.tolist()
        return {"accuracy": right / count if count else 0.0}


class NextToken(Task):
    """The next symbol at every position; outputs are logits (batch, length, vocabulary)."""

    name = "next-token"
    metrics = (
        Metric("bits", more_is_better=False, label="bits per symbol"),
        ACCURACY,
        Metric("perplexity", more_is_better=False),
    )

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy over the positions that count; zero where none does."""
        nats = F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), ignore_index=NOWHERE, reduction="sum")
        return nats / (labels != NOWHERE).sum().clamp(min=1)

    def soften(self, outputs: Tensor) -> Tensor:
        """Return the probabilities at every position."""
        return outputs.softmax(dim=2)

    def distillation_loss(self, outputs: Tensor, soft: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy against the teacher's probabilities, over the positions that count."""
        nats = F.cross_entropy(outputs.flatten(0, 1), soft.flatten(0, 1), reduction="none")
        counts = (labels != NOWHERE).flatten()
        return (nats * counts).sum() / counts.sum().clamp(min=1)

    def totals(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return by example the nats, the right guesses, the positions that count, and the nats of a blind guess."""
        counts = labels != NOWHERE
        nats = F.cross_entropy(outputs.transpose(1, 2).double(), labels, ignore_index=NOWHERE, reduction="none")
        right = ((outputs.argmax(dim=2) == labels) & counts).double().sum(dim=1)
        count = counts.double().sum(dim=1)
        return torch.stack((nats.sum(dim=1), right, count, math.log(outputs.shape[2]) * count), dim=1)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Return bits a symbol, the share of right guesses and the perplexity."""
        nats, right, count, _ = totals.tolist()
        return _text_figures(nats / count if count else 0.0, right / count if count else 0.0)

    def without_network(self, totals: Tensor) -> dict[str, float]:
        """Return the figures of a guess for which all symbols of the vocabulary are alike."""
        _, _, count, blind = totals.tolist()
        return _text_figures(blind / count if count else 0.0, 0.0)


def _text_figures(nats: float, accuracy: float) -> dict[str, float]:
    perplexity = math.exp(min(nats, 700.0))  # finite, however bad a network is
    return {"bits": nats / math.log(2), "accuracy": accuracy, "perplexity": perplexity}


class MultiLabel(Task):
    """Any number of labels at once; outputs are logits (batch, labels), labels zeros and ones."""

    name = "multi-label"
    metrics = (
        Metric("f1", more_is_better=True, is_share=True, label="F1 score"),
        Metric("exact", more_is_better=True, is_share=True, label="exact matches"),
    )

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))

    def soften(self, outputs: Tensor) -> Tensor:
        """Return every label's probability."""
        return outputs.sigmoid()

    def distillation_loss(self, outputs: Tensor, soft: Tensor, labels: Tensor) -> Tensor:
        """Return the binary cross-entropy against the teacher's probabilities."""
        return F.binary_cross_entropy_with_logits(outputs, soft)

    def totals(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return by example the labels rightly said, said, there, whether all are right, and one."""
        said, there = outputs > 0, labels > 0
        exact = (said == there).all(dim=1)
        sums = ((said & there).sum(dim=1), said.sum(dim=1), there.sum(dim=1), exact, torch.ones_like(exact))
        return torch.stack([one.double() for one in sums], dim=1)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Return F1 over all labels alike, and the share of examples with all labels right."""
        both, said, there, exact, count = totals.tolist()
        return {
            "f1": 2 * both / (said + there) if said + there else 1.0,
            "exact": exact / count if count else 0.0,
        }


class Regression(Task):
    """Numbers; outputs and labels are (batch, dimensions)."""

    name = "regression"
    metrics = (
        Metric("rmse", more_is_better=False, label="root mean squared error"),
        Metric("mae", more_is_better=False, label="mean absolute error"),
        Metric("r2", more_is_better=True, label="variance explained"),
    )

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error."""
        return F.mse_loss(outputs, labels.to(outputs.dtype))

    def soften(self, outputs: Tensor) -> Tensor:
        """Return the teacher's numbers."""
        return outputs

    def distillation_loss(self, outputs: Tensor, soft: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared distance from the teacher's numbers."""
        return F.mse_loss(outputs, soft)

    def totals(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return by example the sums of errors squared and absolute, of squared labels, the count, and the labels."""
        wanted = labels.double()
        error = outputs.double() - wanted
        sums = (error.square(), error.abs(), wanted.square(), torch.ones_like(wanted))
        return torch.cat((torch.stack([one.sum(dim=1) for one in sums], dim=1), wanted), dim=1)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Return the root of the mean squared error, the mean absolute error, and the variance explained."""
        squared, absolute, _, count, *_ = totals.tolist()
        if not count:
            return {"rmse": 0.0, "mae": 0.0, "r2": 0.0}
        spread = _spread(totals)
        explained = 1 - squared / spread if spread > 0 else 0.0
        return {"rmse": math.sqrt(squared / count), "mae": absolute / count, "r2": explained}

    def without_network(self, totals: Tensor) -> dict[str, float]:
        """Return the figures of always saying the mean; the deviation bounds its mean absolute error."""
        count = float(totals[3])
        deviation = math.sqrt(_spread(totals) / count) if count else 0.0
        return {"rmse": deviation, "mae": deviation, "r2": 0.0}


def _spread(totals: Tensor) -> float:
    """Return the squared distances of labels from the mean of their dimension, added up."""
    _, _, squares, count, *labels = totals.tolist()
    examples = count / len(labels)
    return max(squares - sum(label**2 for label in labels) / examples, 0.0) if examples else 0.0


TASKS: Mapping[str, Task] = {task.name: task for task in (Classification(), NextToken(), MultiLabel(), Regression())}
CLASSIFICATION = TASKS["classification"]
METRICS: Mapping[str, Metric] = {metric.name: metric for task in TASKS.values() for metric in task.metrics}


def task_named(name: str) -> Task:
    """Return a task by its name."""
    if name not in TASKS:
        raise InvalidInput(f"{name!r} is no task: choose one of {', '.join(TASKS)}.")
    return TASKS[name]
