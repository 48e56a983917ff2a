"""Slices and assignments on the wire: arrays as raw bytes, and what they mean as JSON. No pickles."""

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, find_form_fault
from fedfeast.federation.wire.formats import Packing, WireFault
from fedfeast.flower.messages import Unreadable, one_line
from fedfeast.networks import Architecture, Layout, Level
from fedfeast.networks.built import Member
from fedfeast.networks.ensemble import Bases
from fedfeast.networks.nested_resnet import NestedLevel
from fedfeast.routing import SliceMap, read_slice_map

MOST_DIMENSIONS = 8
MOST_ELEMENTS = 2**40  # by the sizes other than 0: an array without elements still has strides
RAW = "fedfeast.raw"  # an array's serialisation: its elements in C order, little-endian, and nothing else
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}
_ARCHITECTURES: dict[str, type] = {
    "architecture": Architecture,
    "level": Level,
    "member": Member,
    "bases": Bases,
    "nested-level": NestedLevel,
}


def to_array(tensor: Tensor) -> Array:
    """Return a tensor as an array of exactly its bytes."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), RAW, data)


def from_array(array: Array) -> Tensor:
    """Return the tensor that an array holds."""
    dtype, shape = _DTYPES.get(array.dtype), tuple(array.shape)
    if dtype is None or array.stype != RAW:
        raise Unreadable(one_line(f"an array of {array.dtype} serialised as {array.stype}"))
    extent = prod(max(size, 1) for size in shape)
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape) or extent > MOST_ELEMENTS:
        raise Unreadable(one_line(f"an array of shape {shape}"))
    if len(array.data) != prod(shape) * dtype.itemsize:
        raise Unreadable(one_line(f"{len(array.data)} bytes for {array.dtype} of shape {shape}"))
    if not array.data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(shape)


def pack_slice(slice_map: SliceMap, local: Tensor, dtype: torch.dtype) -> ArrayRecord:
    """Return what is sent of a client's vector: one value per routed position, and not a byte more."""
    # Choice: one array for the whole slice. Every array costs requests of its own on every hop (docs/decisions/019).
    return ArrayRecord({"values": to_array(slice_map.pack(local).to(dtype))})


def unpack_slice(slice_map: SliceMap, record: ArrayRecord, wire: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return a client's vector; anything but one value per routed position in the agreed precision is refused."""
    expected = torch.empty(slice_map.payload, dtype=wire, device="meta")
    fault = _find_size_fault(record, slice_map.payload * wire.itemsize)
    if fault is not None:
        raise Unreadable(fault)
    received = {name: from_array(array) for name, array in record.items()}
    fault = find_form_fault({"values": expected}, received)
    if fault is not None:
        raise Unreadable(fault)
    return slice_map.unpack(received["values"].to(dtype))


def pack_arrays(arrays: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a packed vector's arrays for a message."""
    return ArrayRecord({name: to_array(one) for name, one in arrays.items()})


def unpack_arrays(slice_map: SliceMap, record: ArrayRecord, packing: Packing, dtype: torch.dtype) -> Tensor:
    """Return the packed values that a message's arrays stand for; whatever else they hold is refused."""
    sizes = slice_map.tensor_sizes()
    most, total = packing.most_bytes(sizes, dtype), sum(len(array.data) for array in record.values())
    if total > most:  # before any of it is copied
        raise Unreadable(f"{total:,} bytes of weights where there can be {most:,}")
    try:
        return packing.read({name: from_array(array) for name, array in record.items()}, sizes, dtype)
    except WireFault as error:
        raise Unreadable(one_line(error)) from None


def _find_size_fault(record: ArrayRecord, expected_bytes: int) -> str | None:
    """Say that a reply is larger than what was sent, before any of it is copied."""
    total = sum(len(array.data) for array in record.values())
    return None if total <= expected_bytes else f"{total:,} bytes of weights where {expected_bytes:,} were sent"


def wire_dtype(wire: str, weights: torch.dtype) -> torch.dtype:
    """Return the precision that slices travel in, given the setting and that of the weights."""
    return weights if wire == "lossless" else _DTYPES[wire]


def pack_assignment(assignment: Assignment) -> tuple[dict[str, Any], ArrayRecord]:
    """Return a client's part in a round, but for the weights: a JSON object, and the arrays it speaks of."""
    described, parts = assignment.slice_map.describe()
    arrays = {f"map/{name}": part for name, part in parts.items()}
    constants: dict[str, Any] = {}
    for name, constant in assignment.constants.items():
        constants[name] = _put_constant(name, constant, arrays)
    content = {
        "client": asdict(assignment.client),
        "map": described,
        "architectures": [_describe_architecture(one) for one in assignment.architectures],
        "weight": assignment.weight,
        "constants": constants,
    }
    return content, ArrayRecord({name: to_array(tensor) for name, tensor in arrays.items()})


def unpack_assignment(content: Mapping[str, Any], arrays: ArrayRecord, source: Layout) -> Assignment:
    """Return a client's part in a round, given the layout of the whole network."""
    try:
        return _unpack_assignment(content, arrays, source)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(one_line(f"its assignment is unreadable ({error!r})")) from error


def _unpack_assignment(content: Mapping[str, Any], arrays: ArrayRecord, source: Layout) -> Assignment:
    tensors = {name: from_array(array) for name, array in arrays.items()}
    client = Client(**{**content["client"], "held_classes": tuple(content["client"]["held_classes"])})
    constants = {name: _take_constant(name, shape, tensors) for name, shape in content["constants"].items()}
    architectures = tuple(_read_architecture(one) for one in content["architectures"])
    parts = {name.removeprefix("map/"): tensor for name, tensor in tensors.items() if name.startswith("map/")}
    slice_map = read_slice_map(source, content["map"], parts)
    return Assignment(client, slice_map, architectures, content["weight"], constants)


def _put_constant(name: str, constant: Tensor, arrays: dict[str, Tensor]) -> list[int]:
    """Add a constant as runs of equal values: a threshold of every position is as short as the layers are few."""
    values, counts = torch.unique_consecutive(constant.detach().cpu().reshape(-1), return_counts=True)
    arrays[f"constants/{name}"], arrays[f"runs/{name}"] = values, counts.to(torch.int32)
    return list(constant.shape)


def _take_constant(name: str, shape: list[int], arrays: Mapping[str, Tensor]) -> Tensor:
    return arrays[f"constants/{name}"].repeat_interleave(arrays[f"runs/{name}"].long()).reshape(shape)


def _describe_architecture(architecture: Hashable) -> dict[str, Any]:
    for kind, known in _ARCHITECTURES.items():
        if type(architecture) is known:
            return {"kind": kind, **asdict(architecture)}  # type: ignore[call-overload]
    raise InvalidInput(f"{architecture!r} is no architecture of the package's networks: a fleet cannot be sent it.")


def _read_architecture(content: Mapping[str, Any]) -> Hashable:
    fields = {name: _as_tuples(values) for name, values in content.items() if name != "kind"}
    architecture: Hashable = _ARCHITECTURES[content["kind"]](**fields)
    return architecture


def _as_tuples(values: Any) -> Any:
    """Return a list of JSON, and lists in it, as tuples."""
    return tuple(map(_as_tuples, values)) if isinstance(values, list) else values
