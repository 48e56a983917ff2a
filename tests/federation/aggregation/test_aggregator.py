import logging
import math
import tempfile
from pathlib import Path

import pytest
import torch

from fedfeast.federation import Accumulator, Aggregation, Aggregator, Assignment, Client, NormHistory
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices

LAYOUT = Layout.of({"w": (3,)})
FLAT = torch.zeros(3)
SENT = torch.zeros(2)
USUAL = NormHistory((1.0, 1.0, 4.0))


def assignment(index: int, weight: float = 1.0) -> Assignment:
    slices = LeadingSlices.of(LAYOUT, {"w": (2,)})
    return Assignment(Client(index, f"node-{index}", 1e6, num_examples=8), slices, ("only",), weight)


def test_the_plain_mean_is_the_accumulators() -> None:
    aggregator, plain = Aggregator(FLAT, Aggregation(), NormHistory(), 2), Accumulator(3)
    for index, value in enumerate((0.1, 0.3)):
        returned = torch.full((2,), value)
        assert aggregator.take(assignment(index, index + 1.0), SENT, returned) is None
        plain.add(assignment(index).slice_map, returned, index + 1.0)
    assert torch.equal(aggregator.answers.merged_with(FLAT), plain.merged_with(FLAT))
    assert aggregator.norms == pytest.approx([0.1 * 2**0.5, 0.3 * 2**0.5])


@pytest.mark.parametrize("rule", ["mean", "clipped-mean", "trimmed-mean", "median"])
def test_what_is_refused_touches_nothing(rule: str, caplog: pytest.LogCaptureFixture) -> None:
    options = Aggregation(rule, refuse_multiple=3.0)  # type: ignore[arg-type]
    one, other = (Aggregator(FLAT, options, USUAL, 3) for _ in range(2))
    good = torch.tensor([0.5, 0.5])
    for aggregator in (one, other):
        assert aggregator.take(assignment(0), SENT, good, num_examples=8) is None
    with caplog.at_level(logging.WARNING, "fedfeast"):
        assert one.take(assignment(1), SENT, torch.tensor([math.nan, 0.0])) is not None
        assert one.take(assignment(2), SENT, torch.tensor([3.0, 0.5])) is not None
        assert one.take(assignment(3), SENT, good, num_examples=9) is not None
        one.refuse(assignment(4), "tensor w is missing (1 of 1)")
    assert torch.equal(one.answers.merged_with(FLAT), other.answers.merged_with(FLAT))
    assert one.norms == other.norms
    assert [(refusal.client, refusal.reason) for refusal in one.refusals] == [
        ("node-1", "1 of 2 values are not finite"),
        ("node-2", "its change has norm 3.041, above the bound of 3"),
        ("node-3", "it claims 9 examples and declared 8"),
        ("node-4", "tensor w is missing (1 of 1)"),
    ]
    assert caplog.messages == [str(refusal) for refusal in one.refusals]


def test_in_the_first_round_no_norm_is_too_large() -> None:
    aggregator = Aggregator(FLAT, Aggregation(refuse_multiple=3.0), NormHistory(), 1)
    assert aggregator.take(assignment(0), SENT, torch.full((2,), 1e9)) is None


def test_the_clipped_mean_streams_to_the_usual_norm() -> None:
    aggregator = Aggregator(FLAT, Aggregation("clipped-mean", clip_multiple=2.0), USUAL, 2)
    assert isinstance(aggregator.answers, Accumulator)
    aggregator.take(assignment(0), SENT, torch.tensor([2.4, 3.2]))
    assert aggregator.answers.merged_with(FLAT).tolist() == pytest.approx([0.6, 0.8, 0.0])
    aggregator.take(assignment(1), SENT, torch.tensor([0.3, 0.4]))
    assert aggregator.answers.merged_with(FLAT).tolist() == pytest.approx([0.45, 0.6, 0.0])
    assert aggregator.norms == pytest.approx([4.0, 0.5])  # as they came, so that the median stays honest


def test_the_first_clipped_round_takes_its_own_median() -> None:
    aggregator = Aggregator(FLAT, Aggregation("clipped-mean"), NormHistory(), 3)
    for index, size in enumerate((1.0, 2.0, 1000.0)):
        aggregator.take(assignment(index), SENT, torch.tensor([size, 0.0]))
    assert aggregator.answers.merged_with(FLAT).tolist() == pytest.approx([(1 + 2 + 3**2 / 1000) / 3, 0.0, 0.0])


def test_a_round_that_is_given_up_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    aggregator = Aggregator(FLAT, Aggregation("median"), USUAL, 3)
    aggregator.take(assignment(0), SENT, torch.ones(2))
    assert list(tmp_path.iterdir()) == []
    aggregator.close()
    with pytest.raises(ValueError, match="closed"):
        aggregator.answers.merged_with(FLAT)
