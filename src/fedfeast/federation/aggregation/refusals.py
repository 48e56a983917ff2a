"""Checks of a client's reply, before it touches anything that other clients share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median

import torch
from torch import Tensor

# Choice: the norms of this many rounds say what is usual. Norms fall with the learning rate: of 20 rounds of a cosine
# schedule the median is twice what is usual half-way and ten times at the end (docs/decisions/020).
REMEMBERED_ROUNDS = 5
CHUNK = 2**20  # values


@dataclass(frozen=True)
class Refusal:
    """A reply that was not taken in."""

    client: str  # its name
    reason: str

    def __str__(self) -> str:
        return f"the reply of client {self.client} was refused: {self.reason}"


@dataclass(frozen=True)
class NormHistory:
    """How far clients moved their weights in earlier rounds: a value, handed from round to round."""

    medians: tuple[float, ...] = ()  # of the accepted replies of a round, oldest first

    @property
    def typical(self) -> float | None:
        """The median over earlier rounds; None before the first one."""
        return median(self.medians) if self.medians else None

    def after(self, norms: Sequence[float]) -> "NormHistory":
        """Return the history with a round added, given the norms of its accepted replies."""
        # Choice: a round in which nobody moved is left out, since a bound of zero would stop training for good.
        if not norms or median(norms) <= 0:
            return self
        return NormHistory((*self.medians, median(norms))[-REMEMBERED_ROUNDS:])

    def times(self, multiple: float | None) -> float | None:
        """Return a multiple of what is usual; None where there is no multiple, or no earlier round."""
        # Choice: the first round has nothing to be compared with, so no norm is too large in it (docs/decisions/020).
        return None if multiple is None or self.typical is None else multiple * self.typical


def find_form_fault(sent: Mapping[str, Tensor], returned: Mapping[str, Tensor]) -> str | None:
    """Say how a reply's tensors differ from those that were sent in names, shapes or types."""
    missing, added = sorted(sent.keys() - returned.keys()), sorted(returned.keys() - sent.keys())
    if missing:
        return f"tensor {missing[0]} is missing ({len(missing)} of {len(sent)})"
    if added:
        return f"tensor {added[0]} was never sent ({len(added)} such)"
    for name, tensor in sent.items():
        if returned[name].shape != tensor.shape:
            return f"tensor {name} has shape {tuple(returned[name].shape)} in place of {tuple(tensor.shape)}"
        if returned[name].dtype != tensor.dtype:
            return f"tensor {name} is of {_name(returned[name].dtype)} in place of {_name(tensor.dtype)}"
    return None


def find_count_fault(num_examples: int, declared_examples: int) -> str | None:
    """Say what is wrong with the number of examples that a client says it trained on."""
    if not 1 <= num_examples <= declared_examples:
        return f"it claims {num_examples} examples and declared {declared_examples}"
    return None


def find_norm_fault(change: Tensor, norm: float, bound: float | None) -> str | None:
    """Say what is wrong with the values of a change, given its norm."""
    if not isfinite(norm):  # whatever is not finite shows in the norm; only then is it looked for
        count = int((~torch.isfinite(change)).sum())
        return f"{count} of {change.numel()} values are not finite" if count else "its values are too large to add up"
    if bound is not None and norm > bound:
        return f"its change has norm {norm:.4g}, above the bound of {bound:.4g}"
    return None


def norm_of(change: Tensor) -> float:
    """Return the Euclidean norm: chunks in their own precision, which is fast, added up in double precision."""
    chunks = torch.stack([torch.linalg.vector_norm(chunk) for chunk in torch.split(change, CHUNK)])
    norm = float(torch.linalg.vector_norm(chunks.double()))
    # Finite values whose squares are not: rare, and slow.
    return norm if isfinite(norm) else float(torch.linalg.vector_norm(change, dtype=torch.float64))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
