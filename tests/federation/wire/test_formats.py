"""Vectors in fewer bytes: right on average, within a step, and refused where they are not what they should be."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.federation.wire.formats import BLOCK, Packing, WireFault, round_to_bfloat16
from fedfeast.hashed_bits import named_key

SIZES = [600, 0, 401]  # a tensor that ends within a block, none of one, and one of other magnitude
PACKINGS = [Packing(form, share) for form in ("lossless", "float32", "bfloat16", "int8") for share in (None, 0.01, 0.3)]


def vector(dtype: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal(sum(SIZES))).to(dtype)
    return torch.cat([0.01 * drawn[:600], 1 + drawn[600:]])


def sent(packing: Packing, values: Tensor, seed: int = 1) -> dict[str, Tensor]:
    return packing.encode(values, SIZES, named_key(seed, "test"))


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_arrives_is_what_was_sent_up_to_rounding(packing: Packing, dtype: torch.dtype) -> None:
    values = vector(dtype)
    arrays = sent(packing, values)
    arrived = packing.read(arrays, SIZES, dtype)
    assert arrived.dtype == dtype
    torch.testing.assert_close(arrived, packing.decode(arrays, SIZES, dtype), rtol=0, atol=0)
    count = packing.count(values.numel())
    largest = values.abs().sort(descending=True).values[count - 1]
    taken = torch.where(values.abs() >= largest, values, 0)
    assert float((arrived - taken).norm()) <= packing.rounding * float(taken.norm()) + 1e-12
    assert sum(one.nbytes for one in arrays.values()) <= packing.most_bytes(SIZES, dtype)
    if packing.share is None:
        assert sum(one.nbytes for one in arrays.values()) == packing.most_bytes(SIZES, dtype)


@pytest.mark.parametrize("form", ["bfloat16", "int8"])
def test_rounding_is_right_on_average(form: str) -> None:
    packing, values = Packing(form), vector()  # type: ignore[arg-type]
    draws = torch.stack([packing.decode(sent(packing, values, seed), SIZES, torch.float32) for seed in range(400)])
    # The mean of 400 draws is off by a twentieth of what one is; rounding to the nearest would be off as much as ever.
    assert float((draws.mean(0) - values).norm()) < 0.08 * float((draws[0] - values).norm())


def test_a_block_ends_with_its_tensor() -> None:
    small = Packing("int8").decode(sent(Packing("int8"), vector()), SIZES, torch.float32)[:600]
    assert float((small - vector()[:600]).abs().max()) < 0.001  # the next tensor's values are a hundred times as large
    assert len(sent(Packing("int8"), vector())["scales"]) == -(-600 // BLOCK) + -(-401 // BLOCK)


def test_zeros_and_the_largest_numbers_survive() -> None:
    zeros = torch.zeros(sum(SIZES))
    assert not Packing("int8").decode(sent(Packing("int8"), zeros), SIZES, torch.float32).any()
    most = torch.full((4,), torch.finfo(torch.float32).max)
    assert bool(torch.isfinite(round_to_bfloat16(torch.cat([most, -most]), 0)).all())


def test_the_largest_values_are_chosen_and_listed_in_the_shorter_way() -> None:
    few, many = (sent(Packing("lossless", share), vector()) for share in (0.01, 0.3))
    assert few.keys() == {"values", "positions"}
    assert many.keys() == {"values", "mask"}
    assert few["positions"].tolist() == sorted(vector().abs().topk(11).indices.tolist())


def spoiled(packing: Packing, **changes: Tensor) -> dict[str, Tensor]:
    return {**sent(packing, vector()), **changes}


INT8, FEW, MANY = Packing("int8"), Packing("int8", 0.01), Packing("bfloat16", 0.3)
RISING = torch.arange(11, dtype=torch.int32)


@pytest.mark.parametrize(
    ("packing", "arrays", "reason"),
    [
        (INT8, spoiled(INT8, scales=torch.full((5,), torch.inf)), "scales are not finite"),
        (INT8, spoiled(INT8, scales=torch.full((5,), torch.nan)), "scales are not finite"),
        (INT8, spoiled(INT8, scales=torch.full((5,), -1.0)), "scales are not finite numbers from 0 on"),
        (INT8, spoiled(INT8, scales=torch.ones(4)), "tensor scales has shape"),
        (INT8, spoiled(INT8, scales=torch.ones(5, dtype=torch.float64)), "tensor scales is of float64"),
        (INT8, spoiled(INT8, values=torch.full((1001,), -128, dtype=torch.int8)), "below -127"),
        (INT8, spoiled(INT8, values=torch.ones(1001)), "tensor values is of float32"),
        (INT8, spoiled(INT8, more=torch.ones(1)), "tensor more was never sent"),
        (INT8, {"values": torch.zeros(1001, dtype=torch.int8)}, "tensor scales is missing"),
        (FEW, spoiled(FEW, positions=RISING.flip(0)), "not 11 rising ones of 1001"),
        (FEW, spoiled(FEW, positions=RISING * 0), "not 11 rising ones"),
        (FEW, spoiled(FEW, positions=RISING - 1), "not 11 rising ones"),
        (FEW, spoiled(FEW, positions=RISING + 995), "not 11 rising ones"),
        (FEW, spoiled(FEW, positions=RISING[1:]), "tensor positions has shape"),
        (FEW, {"values": torch.zeros(11, dtype=torch.int8)}, "tensor positions is missing"),
        (MANY, spoiled(MANY, mask=torch.full((126,), 255, dtype=torch.uint8)), "not 301 rising ones"),
        (MANY, spoiled(MANY, mask=torch.zeros(126, dtype=torch.uint8)), "not 301 rising ones"),
    ],
)
def test_anything_else_is_refused(packing: Packing, arrays: dict[str, Tensor], reason: str) -> None:
    with pytest.raises(WireFault, match=reason):
        packing.read(arrays, SIZES, torch.float32)
