"""What travels between server and client: slices as raw bytes in array records, everything else as JSON. No pickles."""

import json
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, find_form_fault
from fedfeast.networks import Architecture, Layout, Level
from fedfeast.routing import SliceMap, read_slice_map

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
        torch.uint8,
        torch.bool,
    )
}
_ARCHITECTURES: dict[str, type] = {"architecture": Architecture, "level": Level}


class Unreadable(ValueError):
    """A message does not hold what it should; the text says what is wrong."""


def to_array(tensor: Tensor) -> Array:
    """Return a tensor as an array of exactly its bytes."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), RAW, data)


def from_array(array: Array) -> Tensor:
    """Return the tensor that an array holds."""
    dtype = _DTYPES.get(array.dtype)
    if dtype is None or array.stype != RAW:
        raise Unreadable(f"an array of {array.dtype} serialised as {array.stype}")
    if len(array.data) != prod(array.shape) * dtype.itemsize:
        raise Unreadable(f"{len(array.data)} bytes for {array.dtype} of shape {tuple(array.shape)}")
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)


def pack_slice(slice_map: SliceMap, local: Tensor, dtype: torch.dtype) -> ArrayRecord:
    """Return what is sent of a client's vector: one value per routed position, and not a byte more."""
    # Choice: one array for the whole slice. Every array costs requests of its own on every hop (docs/decisions/019).
    return ArrayRecord({"values": to_array(slice_map.pack(local).to(dtype))})


def unpack_slice(slice_map: SliceMap, record: ArrayRecord, wire: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return a client's vector; anything but one value per routed position in the agreed precision is refused."""
    received = {name: from_array(array) for name, array in record.items()}
    fault = find_form_fault({"values": torch.empty(slice_map.payload, dtype=wire, device="meta")}, received)
    if fault is not None:
        raise Unreadable(fault)
    return slice_map.unpack(received["values"].to(dtype))


def wire_dtype(wire: str, weights: torch.dtype) -> torch.dtype:
    """Return the precision that slices travel in, given the setting and that of the weights."""
    return weights if wire == "lossless" else _DTYPES[wire]


def to_json(content: Mapping[str, Any]) -> ConfigRecord:
    """Return a record of one JSON text."""
    return ConfigRecord({"json": json.dumps(content)})


def from_json(records: RecordDict, name: str) -> dict[str, Any]:
    """Return the JSON object of a message's record."""
    try:
        content = json.loads(str(records.config_records[name]["json"]))
    except (KeyError, ValueError, RecursionError) as error:
        raise Unreadable(f"no readable record {name!r} ({error})") from error
    if not isinstance(content, dict):
        raise Unreadable(f"the record {name!r} is no JSON object")
    return content


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
    fields = {name: tuple(values) for name, values in content.items() if name != "kind"}
    architecture: Hashable = _ARCHITECTURES[content["kind"]](**fields)
    return architecture
