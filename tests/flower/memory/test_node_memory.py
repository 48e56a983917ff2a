"""What a node remembers between rounds: by run and round, in its own folder, and never more than a saving."""

import logging
from pathlib import Path

import pytest
import torch

from fedfeast.federation.wire.memory import ClientMemory, Kept
from fedfeast.flower.memory.node_memory import NeedsWhole, NodeMemory, sha256_of_values
from fedfeast.flower.messages import Order, Unreadable
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices

SLICES = LeadingSlices.of(Layout.of({"a": (4, 3)}), {"a": (2, 2)})
OTHER = LeadingSlices.of(Layout.of({"a": (4, 3)}), {"a": (1, 4 - 1)})
HELD, DIFFERENCE = torch.arange(4.0), torch.full((4,), 0.5)


def opened(folder: Path, round_index: int = 5, terms: str = "terms") -> NodeMemory:
    return NodeMemory.open(str(folder), "../kitchen", terms, round_index)


def order(weights: torch.Tensor, base: torch.Tensor | None = None) -> Order:
    sha256 = "" if base is None else sha256_of_values(base)
    return Order(
        round_index=5,
        learning_rate=0.1,
        assignment={},
        weights_sha256=sha256_of_values(weights),
        base_sha256=sha256,
    )


@pytest.fixture
def memory(tmp_path: Path) -> NodeMemory:
    content = ClientMemory(Kept.of(SLICES, DIFFERENCE), Kept.of(SLICES, HELD))
    opened(tmp_path).save(content, 3)
    return opened(tmp_path)


def test_it_is_there_in_later_rounds_of_the_same_run_alone(tmp_path: Path, memory: NodeMemory) -> None:
    assert memory.content.residual is not None
    torch.testing.assert_close(memory.content.residual.at(SLICES), DIFFERENCE)
    assert opened(tmp_path, terms="of another run").content.residual is None
    again = opened(tmp_path, round_index=3).content  # of a round that is tried again the residual is its own
    assert again.residual is None
    assert again.held is not None
    assert not list(tmp_path.parent.glob("kitchen*"))  # a name is no path


def test_a_difference_is_added_to_what_is_held(memory: NodeMemory) -> None:
    whole = HELD + DIFFERENCE
    torch.testing.assert_close(memory.received(order(whole, HELD), SLICES, DIFFERENCE), whole)
    torch.testing.assert_close(memory.received(order(whole), SLICES, whole), whole)


def test_a_round_that_is_tried_again_finds_its_weights(memory: NodeMemory) -> None:
    torch.testing.assert_close(memory.received(order(HELD, DIFFERENCE), SLICES, DIFFERENCE), HELD)


def test_without_the_base_it_asks_for_whole_weights(tmp_path: Path, memory: NodeMemory) -> None:
    whole = HELD + DIFFERENCE
    for one, slices in ((opened(tmp_path / "empty"), SLICES), (memory, OTHER)):
        with pytest.raises(NeedsWhole, match="no longer holds"):
            one.received(order(whole, HELD), slices, DIFFERENCE)
    with pytest.raises(NeedsWhole):
        memory.received(order(whole, whole), SLICES, DIFFERENCE)
    with pytest.raises(Unreadable, match="not those that the server says"):
        memory.received(order(whole), SLICES, HELD + 1)


def test_a_damaged_file_and_a_full_disk_cost_nothing_but_savings(
    tmp_path: Path, memory: NodeMemory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fedfeast"), "propagate", True)
    memory.path.write_bytes(b"no tensors")
    assert opened(tmp_path).content.held is None
    (tmp_path / "file").write_text("in the way")
    opened(tmp_path / "file").save(ClientMemory(), 1)
    assert "what was sent is not remembered" in caplog.text
