"""Losses that several methods share."""

import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.data.tasks import CLASSIFICATION
from fedfeast.federation.method import Method
from fedfeast.federation.records import Constants

CLASS_PRIOR = "class_prior"  # the constant that a client adds to its logits, made where its labels are


def pass_loss(
    method: Method,
    role: str,
    outputs: tuple[Tensor, ...],
    batch: Batch,
    carried: Tensor | None,
    constants: Constants,
) -> tuple[Tensor, Tensor | None]:
    """Return the method's loss of a pass, and what it leaves, after a client's class prior where there is one."""
    prior = constants.get(CLASS_PRIOR)
    if prior is not None:
        outputs = tuple(one + prior for one in outputs)
    return method.loss(role, outputs, batch, carried, constants)


def supervised_loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Return L_sup (Eq. 9): the task's loss against both labels of the mixed batch."""
    if batch.task is CLASSIFICATION:
        return mixed_cross_entropy(outputs, batch)
    return batch.task.loss(outputs, batch.labels_a)  # only images with classes are ever mixed


def taught_loss(role: str, outputs: Tensor, batch: Batch, carried: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return a student's loss against its teacher alone, others' by labels, and what is told of the teacher."""
    if role == "student":
        assert carried is not None, "the teacher's pass comes first"
        return batch.task.distillation_loss(outputs, carried, batch.labels_a), carried
    told = batch.task.soften(outputs.detach()) if role == "teacher" else None
    return supervised_loss(outputs, batch), told


def mixed_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Return the cross-entropy against both labels of the mixed batch."""
    log_probabilities = F.log_softmax(logits, dim=1)
    first, second = F.nll_loss(log_probabilities, batch.labels_a), F.nll_loss(log_probabilities, batch.labels_b)
    return batch.mix * first + (1 - batch.mix) * second


def soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return L_KD (Eq. 9): cross-entropy against a distribution."""
    return F.cross_entropy(logits, probabilities)
