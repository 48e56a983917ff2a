import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, RecordDict

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client
from fedfeast.flower import wire
from fedfeast.flower.messages import Unreadable, from_json, to_json
from fedfeast.methods import METHODS
from fedfeast.networks import Level
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method

CLIENT = Client(3, "kitchen", 2e6, 17, (0, 4))


def assign(method_name: str) -> tuple[Assignment, torch.Tensor, Any]:
    method, _ = build_method(load_recipe("digits", [f"method.name={method_name}"]))
    flat = method.network.initial_weights(named_generator(0, "weights"))
    (assignment,), _ = method.plan_round(method.initial_state(), flat, [CLIENT], 5, named_generator(0, "plan"))
    return assignment, flat, method


@pytest.mark.parametrize("method_name", sorted(METHODS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_slice_arrives_as_it_was_sent(method_name: str, dtype: torch.dtype) -> None:
    assignment, flat, method = assign(method_name)
    sent = assignment.slice_map.gather(flat)
    record = wire.pack_slice(assignment.slice_map, sent, dtype)
    assert sum(len(array.data) for array in record.values()) == assignment.slice_map.payload * dtype.itemsize
    part, arrays = wire.pack_assignment(assignment)
    records = RecordDict({"order": to_json(part)})
    received = wire.unpack_assignment(from_json(records, "order"), arrays, method.network.layout)
    assert received.client == CLIENT
    assert received.architectures == assignment.architectures
    assert received.slice_map.layout.shapes == assignment.slice_map.layout.shapes
    assert received.slice_map.index().tolist() == assignment.slice_map.index().tolist()
    local = wire.unpack_slice(received.slice_map, record, dtype, torch.float32)
    torch.testing.assert_close(local, sent.to(dtype).to(torch.float32), rtol=0, atol=0)
    assert received.constants.keys() == assignment.constants.keys()
    for name, constant in assignment.constants.items():
        torch.testing.assert_close(received.constants[name], constant, rtol=0, atol=0)


def test_thresholds_of_every_position_travel_as_runs() -> None:
    assignment, _, _ = assign("fiarse")
    _, arrays = wire.pack_assignment(assignment)
    thresholds = sum(len(array.data) for name, array in arrays.items() if name != "map/mask")
    assert thresholds < assignment.constants["thresholds"].numel() / 20
    mask = arrays["map/mask"]
    assert len(mask.data) == -(-assignment.slice_map.source.size // 8)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (ArrayRecord({}), "tensor values is missing"),
        (ArrayRecord({"other": wire.to_array(torch.zeros(3))}), "tensor values is missing"),
        (ArrayRecord({"values": wire.to_array(torch.zeros(3))}), r"shape \(3,\) in place of"),
        (ArrayRecord({"values": Array(np.zeros(3, dtype=np.float32))}), "serialised as numpy.ndarray"),
    ],
)
def test_anything_but_the_slice_is_refused(record: ArrayRecord, complaint: str) -> None:
    assignment, _, _ = assign("feast")
    with pytest.raises(Unreadable, match=complaint):
        wire.unpack_slice(assignment.slice_map, record, torch.float32, torch.float32)


def test_another_precision_is_refused() -> None:
    assignment, flat, _ = assign("feast")
    record = wire.pack_slice(assignment.slice_map, assignment.slice_map.gather(flat), torch.float16)
    with pytest.raises(Unreadable, match="of float16 in place of float32"):
        wire.unpack_slice(assignment.slice_map, record, torch.float32, torch.float32)


def test_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Unreadable, match="4 bytes for float32"):
        wire.from_array(Array("float32", (2,), wire.RAW, b"\0\0\0\0"))
    with pytest.raises(Unreadable, match="serialised as"):
        wire.from_array(Array(np.zeros(2)))
    for shape in ((-2, -1), (1,) * 9):
        with pytest.raises(Unreadable, match="an array of shape"):
            wire.from_array(Array("float32", shape, wire.RAW, b"\0" * 8))
    endless: list[tuple[int, ...]] = [(0, *[2**31 - 1] * 4), (0, 2**63), (2**70, 0)]  # no bytes, and no such strides
    for sizes in endless:
        with pytest.raises(Unreadable, match="an array of shape"):
            wire.from_array(Array("float32", sizes, wire.RAW, b""))
    assert wire.from_array(Array("float32", (0, 3), wire.RAW, b"")).shape == (0, 3)


def test_a_reply_larger_than_what_was_sent_is_refused_unread() -> None:
    assignment, _, _ = assign("feast")
    record = ArrayRecord({"values": Array("strange", (1,), "unknown", bytes(4 * assignment.slice_map.payload + 1))})
    with pytest.raises(Unreadable, match="bytes of weights where"):
        wire.unpack_slice(assignment.slice_map, record, torch.float32, torch.float32)


@pytest.mark.parametrize("broken", [{}, {"client": {}}, {"client": 1, "map": {"kind": "nothing"}}])
def test_an_assignment_that_makes_no_sense_is_unreadable(broken: dict[str, Any]) -> None:
    _, _, method = assign("feast")
    with pytest.raises(Unreadable, match="its assignment is unreadable"):
        wire.unpack_assignment(broken, ArrayRecord({}), method.network.layout)


def test_broken_json_is_said() -> None:
    with pytest.raises(Unreadable, match="no readable record 'order'"):
        from_json(RecordDict({}), "order")


def test_an_unknown_architecture_is_not_sent() -> None:
    assignment, _, _ = assign("feast")
    strange = Assignment(CLIENT, assignment.slice_map, ("something",), 1.0)
    with pytest.raises(InvalidInput, match="no architecture"):
        wire.pack_assignment(strange)


def test_the_default_wire_is_lossless() -> None:
    assert wire.wire_dtype("lossless", torch.float64) == torch.float64
    assert wire.wire_dtype("bfloat16", torch.float32) == torch.bfloat16
    assert isinstance(assign("heterofl")[0].architectures[0], Level)


def test_a_level_travels_with_its_blocks_and_divisor() -> None:
    assignment, _, method = assign("scalefl")
    level = assignment.architectures[0]
    assert isinstance(level, Level)
    assert level.blocks
    content, arrays = wire.pack_assignment(replace(assignment, architectures=(replace(level, divisor=0.5),)))
    content = json.loads(json.dumps(content))
    (read,) = wire.unpack_assignment(content, arrays, method.network.layout).architectures
    assert read == replace(level, divisor=0.5)
    for later in ("blocks", "divisor"):  # what an earlier version would not send
        del content["architectures"][0][later]
    content["architectures"][0]["exits"] = [len(level.channels)]
    (read,) = wire.unpack_assignment(content, arrays, method.network.layout).architectures
    assert read == Level(level.channels, (len(level.channels),))


@pytest.mark.parametrize("method", ["splitmix", "nefl", "depthfl"])
def test_architectures_of_every_network_travel(method: str) -> None:
    assignment, _, built = assign(method)
    content, arrays = wire.pack_assignment(assignment)
    read = wire.unpack_assignment(json.loads(json.dumps(content)), arrays, built.network.layout)
    assert read.architectures == assignment.architectures
