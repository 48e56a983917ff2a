"""The wire between server and clients: what arrives of what is sent, and how many bytes it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.refusals import norm_of
from fedfeast.federation.records import Assignment
from fedfeast.federation.wire.formats import Arrays, Format, Packing
from fedfeast.federation.wire.memory import ClientMemory, Kept, WireMemory
from fedfeast.hashed_bits import named_key
from fedfeast.routing import SliceMap
from fedfeast.units import GIB


@dataclass(frozen=True)
class Wire:
    """In which form weights go to clients and changes come back."""

    down: Format = "lossless"
    up: Format = "lossless"
    up_topk: float | None = None
    error_feedback: bool = True
    down_deltas: bool = False
    state_gib: float = 4.0

    def __post_init__(self) -> None:
        if self.up_topk is not None and not 0 < self.up_topk < 1:
            raise InvalidInput(f"wire.up_topk = {self.up_topk}: give a share above 0 and below 1, or leave it out.")
        if self.down_deltas and self.down not in ("bfloat16", "int8"):
            raise InvalidInput(
                f"wire.down_deltas = true saves nothing with wire.down = {self.down!r}: set wire.down to bfloat16 or "
                "int8, or leave it out."
            )

    @property
    def downwards(self) -> Packing:
        """How weights travel to a client."""
        return Packing(self.down)

    @property
    def upwards(self) -> Packing:
        """How its answer travels back: the weights themselves where all of it arrives, else their change."""
        return Packing(self.up, self.up_topk)

    @property
    def is_lossless(self) -> bool:
        """Whether what arrives is what was sent, both ways."""
        return self.downwards.is_lossless and self.upwards.is_lossless

    @property
    def feeds_back(self) -> bool:
        """Whether clients keep what rounding left out of their changes."""
        return self.error_feedback and not self.upwards.is_lossless

    @property
    def most_bytes(self) -> float:
        """The memory for what is remembered of clients."""
        return self.state_gib * GIB

    @property
    def stretch(self) -> float:
        """By how much an honest change may be longer on arrival than training made it."""
        return (1 + (self._most_residual if self.feeds_back else 0)) * (1 + self.upwards.rounding)

    @property
    def _most_residual(self) -> float:
        """The longest residual that is added to a change, in lengths of that change."""
        # Choice: of a share k of values a residual gathers about 1/k rounds; from long ago it must not outweigh today.
        return 1.0 if self.up_topk is None else 1 / self.up_topk

    def capped(self, residual: Tensor, change: Tensor) -> Tensor:
        """Return a residual, shortened where it is out of proportion to the change that it is added to."""
        longest, length = self._most_residual * norm_of(change), norm_of(residual)
        return residual * (longest / length) if length > longest else residual


@dataclass(frozen=True, eq=False)
class Delivery:
    """A client's weights on their way to it."""

    arrays: Arrays
    received: Tensor  # packed, as they arrive
    is_delta: bool  # against what the client holds


def deliver(
    wire: Wire, assignment: Assignment, sent: Tensor, held: Kept | None, seed: int, round_index: int
) -> Delivery:
    """Pack a client's weights, given as a vector of its layout; a round that is tried again sends the same bytes."""
    slices, packing = assignment.slice_map, wire.downwards
    sizes, packed = slices.tensor_sizes(), slices.pack(sent)
    base = held.values.to(packed) if wire.down_deltas and held is not None and held.is_of(slices) else None
    key = named_key(seed, "round", round_index, "client", assignment.client.index, "wire down")
    arrays = packing.encode(packed if base is None else packed - base, sizes, key)
    return Delivery(arrays, unfold(packing.decode(arrays, sizes, packed.dtype), base), base is not None)


def unfold(arrived: Tensor, base: Tensor | None) -> Tensor:
    """Return the packed weights that arrived, given those that they are a difference to."""
    return arrived if base is None else base + arrived


def answer(
    wire: Wire,
    assignment: Assignment,
    received: Tensor,
    returned: Tensor,
    residual: Kept | None,
    seed: int,
    round_index: int,
) -> tuple[Arrays, Kept | None]:
    """Pack a client's answer, given packed what it received and returns; return what rounding left out, too.

    With privacy, what it returns has its noise already: rounding and what is left of it tell nothing more.
    """
    slices, packing = assignment.slice_map, wire.upwards
    if packing.is_lossless:
        return {"values": returned}, None
    sizes, change = slices.tensor_sizes(), returned - received
    if wire.feeds_back and residual is not None:
        change = change + wire.capped(residual.at(slices).to(change), change)
    key = named_key(seed, "round", round_index, "client", assignment.client.index, "wire up")
    arrays = packing.encode(change, sizes, key)
    if not wire.feeds_back:
        return arrays, None
    left = change - packing.decode(arrays, sizes, change.dtype)
    return arrays, Kept.of(slices, left) if bool(torch.isfinite(left).all()) else None


def merged_answer(wire: Wire, sent: Tensor, received: Tensor, arrived: Tensor) -> Tensor:
    """Return the packed weights to merge: the server's own, moved as the client moved those that it received."""
    # Choice: what rounding did on the way to the client never enters the global vector, only what was trained from it.
    if not wire.upwards.is_lossless:
        return sent + arrived
    return arrived if wire.downwards.is_lossless else sent + (arrived - received)


@dataclass(frozen=True, eq=False)
class Carried:
    """What went over the wire in a round, and what clients remember of it; shares of a cohort add up."""

    bytes_down: int = 0
    bytes_up: int = 0
    changed: Mapping[int, ClientMemory] = field(default_factory=dict)

    def __add__(self, other: "Carried") -> "Carried":
        changed = {**self.changed, **other.changed}
        return Carried(self.bytes_down + other.bytes_down, self.bytes_up + other.bytes_up, changed)


class Link:
    """The wire of one round in a simulation: clients are as far away as on a fleet, and remember as much."""

    def __init__(self, wire: Wire, memory: WireMemory, seed: int, round_index: int) -> None:
        self.wire, self._memory, self._seed, self._round_index = wire, memory, seed, round_index
        self.carried = Carried()

    def deliver(self, assignment: Assignment, sent: Tensor) -> Tensor:
        """Return what arrives of the vector that a client is sent."""
        slices = assignment.slice_map
        if self.wire.downwards.is_lossless:
            self.count_lossless(slices, sent.dtype, down=True)
            return sent
        client = assignment.client.index
        held = self._memory.of(client).held
        delivery = deliver(self.wire, assignment, sent, held, self._seed, self._round_index)
        self._count(num_bytes(delivery.arrays), 0)
        if self.wire.down_deltas:
            self._remember(client, held=Kept.of(slices, delivery.received))
        return slices.unpack(delivery.received)

    def answer(self, assignment: Assignment, sent: Tensor, received: Tensor, returned: Tensor) -> Tensor:
        """Return what the server makes of the vector that a client returns."""
        slices = assignment.slice_map
        if self.wire.is_lossless:
            self.count_lossless(slices, returned.dtype, down=False)
            return returned
        client, sizes = assignment.client.index, slices.tensor_sizes()
        own = (slices.pack(received), slices.pack(returned))
        residual = self._memory.of(client).residual
        arrays, left = answer(self.wire, assignment, *own, residual, self._seed, self._round_index)
        self._count(0, num_bytes(arrays))
        if left is not None:
            self._remember(client, residual=left)
        arrived = self.wire.upwards.decode(arrays, sizes, returned.dtype)
        return slices.unpack(merged_answer(self.wire, slices.pack(sent), own[0], arrived))

    def count_lossless(self, slices: SliceMap, dtype: torch.dtype, down: bool) -> None:
        """Count what travels as it is, one way, where an engine needs no vector of it."""
        whole = slices.payload * dtype.itemsize
        self._count(whole if down else 0, 0 if down else whole)

    def _count(self, down: int, up: int) -> None:
        self.carried += Carried(down, up)

    def _remember(self, client: int, residual: Kept | None = None, held: Kept | None = None) -> None:
        known = self.carried.changed.get(client, self._memory.of(client))
        changed = ClientMemory(residual or known.residual, held or known.held)
        self.carried += Carried(changed={client: changed})


def num_bytes(arrays: Arrays) -> int:
    """Return the bytes of arrays on the wire."""
    return sum(one.nbytes for one in arrays.values())
