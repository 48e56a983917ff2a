"""Both ends of the wire: error feedback, differences, and what the server makes of an answer."""

import pytest
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Link, Wire, WireMemory
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices

SOURCE = Layout.of({"a": (40, 20), "b": (30,)}, alignment=32)
SLICES = LeadingSlices.of(SOURCE, {"a": (30, 20), "b": (30,)})
ASSIGNMENT = Assignment(Client(5, "five", 1e6, 10), SLICES, (), 1.0)
SENT = torch.from_numpy(torch.arange(SLICES.payload).numpy() % 17 / 10.0).float()


def change(seed: int) -> Tensor:
    return 0.01 * torch.randn(SLICES.payload, generator=torch.Generator().manual_seed(seed))


def go(wire: Wire, rounds: int) -> tuple[Tensor, Tensor, WireMemory, list[Link]]:
    """Return what a client meant to move in all rounds, what arrived of it, what is remembered, and the links."""
    memory, meant, arrived, links = WireMemory(), torch.zeros_like(SENT), torch.zeros_like(SENT), []
    for index in range(rounds):
        link = Link(wire, memory, 0, index)
        received = link.deliver(ASSIGNMENT, SENT + arrived)
        moved = change(index)
        arrived = link.answer(ASSIGNMENT, SENT + arrived, received, received + moved) - SENT
        meant, memory = meant + moved, memory.after(link.carried.changed, wire.most_bytes)
        links.append(link)
    return meant, arrived, memory, links


def test_nothing_is_touched_by_default() -> None:
    link = Link(Wire(), WireMemory(), 0, 0)
    assert link.deliver(ASSIGNMENT, SENT) is SENT
    returned = SENT + change(0)
    assert link.answer(ASSIGNMENT, SENT, SENT, returned) is returned
    assert (link.carried.bytes_down, link.carried.bytes_up) == (4 * 630, 4 * 630)
    assert not link.carried.changed


@pytest.mark.parametrize(
    "wire", [Wire(up="int8"), Wire(up="bfloat16"), Wire(up_topk=0.2), Wire(up="int8", up_topk=0.1)]
)
def test_what_rounding_leaves_out_is_made_up_for(wire: Wire) -> None:
    meant, arrived, memory, _ = go(wire, 20)
    residual = memory.of(5).residual
    assert residual is not None
    torch.testing.assert_close(arrived + residual.values, meant, rtol=0, atol=2e-6)  # nothing is lost, only late
    without = Wire(wire.down, wire.up, wire.up_topk, error_feedback=False)
    _, forgotten, nothing, _ = go(without, 20)
    assert not nothing.clients
    assert float((arrived - meant).norm()) < float((forgotten - meant).norm())


def test_rounding_on_the_way_down_never_enters_the_servers_weights() -> None:
    for wire in (Wire(down="int8"), Wire(down="int8", up="int8", error_feedback=False)):
        link = Link(wire, WireMemory(), 0, 0)
        received = link.deliver(ASSIGNMENT, SENT)
        assert not torch.equal(received, SENT)
        merged = link.answer(ASSIGNMENT, SENT, received, received)  # a client that trains nothing
        torch.testing.assert_close(merged, SENT, rtol=0, atol=0)


def test_differences_are_far_more_precise_and_as_short() -> None:
    whole, deltas = (Wire(down="int8", down_deltas=one) for one in (False, True))

    def error(wire: Wire) -> tuple[float, int]:
        _, arrived, memory, links = go(wire, 3)
        last = Link(wire, memory, 0, 3)
        return float((last.deliver(ASSIGNMENT, SENT + arrived) - SENT - arrived).norm()), links[-1].carried.bytes_down

    (rough, size), (fine, same_size) = error(whole), error(deltas)
    assert fine < rough / 20
    assert size == same_size


def test_a_round_that_is_tried_again_sends_the_same() -> None:
    links = [Link(Wire(down="int8", up="int8"), WireMemory(), 3, 2) for _ in range(2)]
    received = [link.deliver(ASSIGNMENT, SENT) for link in links]
    torch.testing.assert_close(received[0], received[1], rtol=0, atol=0)
    other = Link(links[0].wire, WireMemory(), 3, 3).deliver(ASSIGNMENT, SENT)
    assert not torch.equal(received[0], other)


def test_a_residual_never_outweighs_the_change_it_is_added_to() -> None:
    wire = Wire(up="int8")
    torch.testing.assert_close(wire.capped(torch.full((4,), 100.0), torch.full((4,), 0.5)), torch.full((4,), 0.5))
    few = Wire(up_topk=0.25)
    torch.testing.assert_close(few.capped(torch.full((4,), 100.0), torch.full((4,), 0.5)), torch.full((4,), 2.0))
    assert not few.capped(torch.full((4,), 100.0), torch.zeros(4)).any()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"wire.up_topk = 1.5: give a share"):
        Wire(up_topk=1.5)
    with pytest.raises(InvalidInput, match=r"wire.down_deltas = true saves nothing with wire.down = 'lossless'"):
        Wire(down_deltas=True)
