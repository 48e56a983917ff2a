"""fedfeast.check: the numerical trial, its notes, and what it refuses by the tensor."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_networks import cnn
from torch import Tensor, nn

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Builder, check, elastic

ROWS = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))


def test_a_family_that_nests(capsys: pytest.CaptureFixture[str]) -> None:
    report = fedfeast.check(cnn, np.zeros((1, 8, 8), dtype=np.uint8), {"classes": 3})
    assert (report.num_members, len(report.members)) == (8, 8)
    assert (report.least_macs, report.greatest_macs) == (report.members[0].macs, report.members[-1].macs)
    assert report.least_parameters == 50
    assert "known does not say it: channels = 1" in report.notes[0]
    assert "batch norms (1) use batch statistics in training and are recalibrated for serving." in report.notes
    shown = capsys.readouterr().out
    assert shown.strip() == str(report) == repr(report)
    assert shown.startswith("cnn nests: 8 members, 1,926 to")
    assert "width=2 hidden=3 depth=1" in shown


def test_an_array_is_one_example_or_a_batch() -> None:
    known = {"classes": 3, "channels": 1}
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    assert check(cnn, images[0], known, quiet=True) == check(cnn, images, known, quiet=True)
    with pytest.raises(InvalidInput, match="does not fit the network"):
        check(cnn, torch.randn(5), known, quiet=True)
    with pytest.raises(InvalidInput, match="give one example of the data"):
        check(cnn, torch.randn(1, 8, 8), {**known, "shape": (1, 9, 9)}, quiet=True)
    with pytest.raises(InvalidInput, match="decorate the function"):
        check(nn.Linear, torch.randn(5))  # type: ignore[arg-type]


def embedding(width: int, *, classes: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(9, width), nn.Linear(width, classes))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.empty(0, 5), r"the example of shape \[0, 5\] holds nothing"),
        (torch.ones(2, 5, dtype=torch.complex64), "holds complex numbers"),
        (torch.full((4, 5), 9), "cannot take this example .IndexError: .*token ids below the vocabulary"),
    ],
)
def test_an_example_that_no_network_takes_is_refused(example: Tensor, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check(elastic(width=[2, 4])(embedding), example, {"classes": 3}, quiet=True)


class Fused(nn.Module):
    """Query, key and value in one layer of a changing width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(5, 3 * width), nn.Linear(width, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        q, k, v = self.qkv(inputs).chunk(3, dim=-1)
        logits: Tensor = self.out(q * k.sigmoid() + v)
        return logits


class Averaging(nn.Module):
    """A mean over channels whose number changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, width), nn.Linear(1, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.inner(inputs).mean(dim=1, keepdim=True))
        return logits


class OwnNorm(nn.Module):
    """A root-mean-square norm as many write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * inputs / (inputs.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def normed(norm: Callable[[int], nn.Module]) -> Builder:
    return elastic(width=[2, 4])(lambda width: nn.Sequential(nn.Linear(5, width), norm(width), nn.Linear(width, 3)))


class Plain(nn.Module):
    """Depth with or without a residual path."""

    def __init__(self, depth: int, residual: bool) -> None:
        super().__init__()
        self.inner, self.residual = nn.ModuleList(nn.Linear(5, 5) for _ in range(depth)), residual
        self.head = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.inner:
            inputs = layer(inputs) + (inputs if self.residual else 0)
        logits: Tensor = self.head(inputs)
        return logits


@pytest.mark.parametrize(("module", "tensor"), [(Fused, "qkv.weight"), (Averaging, "inner.weight")])
def test_what_nests_silently_wrong_is_refused_by_the_tensor(module: type[nn.Module], tensor: str) -> None:
    builder = elastic(width=[2, 4])(lambda width: module(width))
    with pytest.raises(InvalidInput, match=rf"width=2 in width=4 .* outputs differ by .*, from {tensor} on"):
        check(builder, ROWS)


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm, nn.RMSNorm, OwnNorm, lambda width: nn.GroupNorm(1, width)],
    ids=["LayerNorm", "RMSNorm", "own", "GroupNorm"],
)
def test_a_norm_over_a_changing_width_is_a_note(norm: Callable[[int], nn.Module]) -> None:
    report = check(normed(norm), ROWS, quiet=True)
    assert any(note.startswith("1 normalises over a width that changes with width") for note in report.notes)


def test_a_group_norm_of_groups_of_one_size_is_none() -> None:
    report = check(normed(lambda width: nn.GroupNorm(width // 2, width)), ROWS, quiet=True)
    assert report.notes == ("norms of each example by itself (GroupNorm) need no recalibration.",)


def test_depth_without_a_residual_path_is_a_note() -> None:
    with_path, without = (
        check(elastic(depth=[1, 2])(lambda depth, path=path: Plain(depth, path)), ROWS, quiet=True)
        for path in (True, False)
    )
    assert with_path.notes == ()
    assert without.notes[0].startswith("depth adds layers without a residual path (inner.1.weight)")


class Drawing(nn.Module):
    """Drops by torch's global generator."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, width), nn.Linear(width, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(F.dropout(self.inner(inputs), 0.5, self.training))
        return logits


def test_unnamed_draws_are_refused() -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(InvalidInput, match=r"two passes over the same batch differ.*use nn.Dropout"):
        check(elastic(width=[2, 4])(lambda width: Drawing(width)), ROWS)
    assert torch.equal(torch.random.get_rng_state(), before)


class Counting(nn.Module):
    """Keeps a count in a buffer and a mask in a plain attribute."""

    seen: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, width), nn.Linear(width, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.mask = torch.ones(1)

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += len(inputs)
        logits: Tensor = self.head(self.inner(inputs) * self.mask.to(inputs))
        return logits


def test_state_that_is_not_federated_is_noted() -> None:
    report = check(elastic(width=[2, 4])(lambda width: Counting(width)), ROWS, quiet=True)
    assert any("the buffer seen changes in a pass" in note for note in report.notes)
    assert any(note.startswith("mask is a plain tensor") for note in report.notes)
