"""What is remembered of clients: by position, as tensors, and no more of it than there is room for."""

import torch

from fedfeast.federation.wire.memory import ClientMemory, Kept, WireMemory
from fedfeast.networks import Layout
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions, SliceMap

SOURCE = Layout.of({"a": (4, 3), "b": (5,)}, alignment=4)
ROWS = {"a": (torch.tensor([1, 2]), torch.tensor([0, 2])), "b": (torch.tensor([0, 4]),)}
MASK = torch.zeros(SOURCE.size, dtype=torch.bool)
MASK[[1, 4, 13]] = True
MAPS: list[SliceMap] = [
    LeadingSlices.of(SOURCE, {"a": (2, 2), "b": (3,)}),
    ChosenSlices.of(SOURCE, ROWS),
    MaskedPositions.of(SOURCE, MASK),
]


def kept(slices: SliceMap, size: int | None = None) -> Kept:
    return Kept.of(slices, torch.arange(1.0, (size or slices.payload) + 1))


def test_values_follow_their_positions_to_another_slice() -> None:
    for before in MAPS:
        flat = torch.zeros(SOURCE.size)
        before.scatter_(flat, before.unpack(kept(before).values))
        for after in MAPS:
            assert kept(before).is_of(after) == (before is after)
            torch.testing.assert_close(kept(before).at(after), after.pack(after.gather(flat)), rtol=0, atol=0)


def test_sizes_of_tensors_add_up_to_the_payload() -> None:
    assert [one.tensor_sizes() for one in MAPS] == [[4, 3], [4, 2], [2, 1]]
    assert all(sum(one.tensor_sizes()) == one.payload for one in MAPS)


def test_it_survives_as_tensors() -> None:
    before = WireMemory({7: ClientMemory(kept(MAPS[1]), kept(MAPS[0])), 2: ClientMemory(held=kept(MAPS[2]))})
    after = WireMemory.read(before.tensors())
    assert list(after.clients) == [7, 2]
    first, second = after.of(7), after.of(2)
    assert first.residual is not None
    assert first.residual.is_of(MAPS[1])
    assert second.residual is None
    assert second.held is not None
    torch.testing.assert_close(second.held.at(MAPS[2]), kept(MAPS[2]).values)
    assert WireMemory.read({}).clients == {}


def test_whoever_was_not_asked_for_longest_is_forgotten_first() -> None:
    one = ClientMemory(residual=kept(MAPS[0]))  # 28 bytes
    memory = WireMemory().after({3: one, 1: one}, 60).after({2: one}, 60)
    assert list(memory.clients) == [3, 2]
    assert list(memory.after({3: one}, 60).clients) == [2, 3]
    assert list(memory.after({4: one}, 20).clients) == []
    assert memory.of(9).residual is None
