"""What both ends of the wire remember of a client from one of its rounds to the next."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fedfeast.federation.records import State
from fedfeast.routing import SliceMap, read_slice_map


@dataclass(frozen=True, eq=False)
class Kept:
    """Values of the positions that a client was sent, and which positions those were."""

    content: str  # of the slice map's description, as JSON
    arrays: Mapping[str, Tensor]
    values: Tensor  # packed

    @classmethod
    def of(cls, slice_map: SliceMap, values: Tensor) -> Self:
        """Keep packed values of a slice, in the host's memory."""
        content, arrays = slice_map.describe()
        return cls(json.dumps(content), arrays, _on_host(values.detach()))

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return self.values.nbytes + sum(one.nbytes for one in self.arrays.values())

    def is_of(self, slice_map: SliceMap) -> bool:
        """Return whether these are the values of exactly this slice."""
        content, arrays = slice_map.describe()
        same = json.dumps(content) == self.content and arrays.keys() == self.arrays.keys()
        return same and all(torch.equal(one, self.arrays[name]) for name, one in arrays.items())

    def at(self, slice_map: SliceMap) -> Tensor:
        """Return the values packed for a slice, perhaps another one; zero where nothing is kept."""
        if self.is_of(slice_map):
            return self.values
        earlier = read_slice_map(slice_map.source, json.loads(self.content), self.arrays)
        flat = self.values.new_zeros(slice_map.source.size)
        earlier.scatter_(flat, earlier.unpack(self.values))
        return slice_map.pack(slice_map.gather(flat))

    def tensors(self) -> State:
        """Return it as tensors alone."""
        content = torch.frombuffer(bytearray(self.content.encode()), dtype=torch.uint8)
        return {"values": self.values, "map": content, **{f"map.{name}": one for name, one in self.arrays.items()}}

    @classmethod
    def read(cls, tensors: State) -> Self:
        """Return what ``tensors`` made tensors of."""
        arrays = {name.removeprefix("map."): one for name, one in tensors.items() if name.startswith("map.")}
        return cls(bytes(tensors["map"].numpy()).decode(), arrays, tensors["values"])


@dataclass(frozen=True, eq=False)
class ClientMemory:
    """What is remembered of one client."""

    residual: Kept | None = None  # of its changes: what rounding left out of what it sent
    held: Kept | None = None  # the weights that it was last sent, as they arrived

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return sum(one.num_bytes for one in (self.residual, self.held) if one is not None)

    def tensors(self) -> State:
        """Return it as tensors alone."""
        parts = {"residual": self.residual, "held": self.held}
        return {
            f"{name}.{key}": one
            for name, part in parts.items()
            if part is not None
            for key, one in part.tensors().items()
        }

    @classmethod
    def read(cls, tensors: State) -> Self:
        """Return what ``tensors`` made tensors of."""
        residual, held = (_below(tensors, f"{name}.") for name in ("residual", "held"))
        return cls(Kept.read(residual) if residual else None, Kept.read(held) if held else None)


@dataclass(frozen=True, eq=False)
class WireMemory:
    """What is remembered of all clients: a value, handed from round to round."""

    clients: Mapping[int, ClientMemory] = field(default_factory=dict)  # whose last round is longest ago first

    def of(self, client: int) -> ClientMemory:
        """Return what is remembered of a client; nothing of whoever is new or was forgotten."""
        return self.clients.get(client, ClientMemory())

    def after(self, changed: Mapping[int, ClientMemory], most_bytes: float) -> "WireMemory":
        """Return the memory with what a round changed; what was not needed for longest is forgotten beyond a size."""
        kept = {client: one for client, one in self.clients.items() if client not in changed}
        kept |= {client: changed[client] for client in sorted(changed)}
        total = sum(one.num_bytes for one in kept.values())
        for client in list(kept):
            if total <= most_bytes:
                break
            total -= kept.pop(client).num_bytes
        return WireMemory(kept)

    def tensors(self) -> State:
        """Return it as tensors alone, for a checkpoint."""
        return {
            f"{place}.{client}.{key}": one
            for place, (client, memory) in enumerate(self.clients.items())
            for key, one in memory.tensors().items()
        }

    @classmethod
    def read(cls, tensors: State) -> Self:
        """Return what ``tensors`` made tensors of."""
        names = {(int(place), int(client)) for place, client, *_ in (name.split(".") for name in tensors)}
        read = ((client, ClientMemory.read(_below(tensors, f"{place}.{client}."))) for place, client in sorted(names))
        return cls(dict(read))


def _on_host(values: Tensor) -> Tensor:
    """Return values in the host's memory; a GPU's in pages that it copies to and from several times as fast."""
    if not values.is_cuda:
        return values.cpu()
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)


def _below(tensors: State, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
