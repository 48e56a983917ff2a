import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fedfeast.engines.graphs.kernels.launching import (
    Launches,
    collected_launches,
    compile_launches,
    divide,
    launch,
    magic_of,
)
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK = 1 << 16


@triton.jit  # type: ignore[untyped-decorator]
def _divide_all(numbers, magics, out, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    number = tl.load(numbers + i, mask=i < count, other=0)
    magic = tl.load(magics + i, mask=i < count, other=0)
    tl.store(out + i, divide(number, magic), mask=i < count)


@triton.jit  # type: ignore[untyped-decorator]
def _fill(out, value, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, SIZE), value)


def test_division_by_multiplication_is_exact() -> None:
    divisors = np.arange(1, 1101)
    largest = 2**21 // divisors
    some = named_generator(0).integers(0, 2**21 + 1, (len(divisors), 256))
    # The edges, where a quotient changes, are where a rounded factor would go wrong.
    edges = (largest[:, None] - np.arange(128)).clip(0) * divisors[:, None]
    numbers = np.concatenate((some, edges, (edges - 1).clip(0), edges + 1, np.full((len(divisors), 1), 2**21)), axis=1)
    magics = np.array([magic_of(int(divisor)) for divisor in divisors])
    assert ((magics >= -(2**31)) & (magics < 2**31)).all(), "it travels as a signed number of 32 bits"
    sent, factors = (
        torch.from_numpy(np.ascontiguousarray(values).reshape(-1)).to(DEVICE, torch.int32)
        for values in (numbers, np.broadcast_to(magics[:, None], numbers.shape))
    )
    out = torch.full_like(sent, -1)
    launch(_divide_all, (triton.cdiv(out.numel(), BLOCK),), sent, factors, out, out.numel(), SIZE=BLOCK)
    assert np.array_equal(out.cpu().numpy().reshape(numbers.shape), numbers // divisors[:, None])


def test_launches_are_noted_once_a_kind_and_not_made() -> None:
    whole, low = torch.zeros(8, device=DEVICE), torch.zeros(8, dtype=torch.bfloat16, device=DEVICE)
    with collected_launches() as launches:
        launch(_fill, (1,), whole, 1, SIZE=8)
        launch(_fill, (3,), whole, 2, SIZE=8)  # another number, another grid: the same kernel
        launch(_fill, (1,), value=3, SIZE=8, out=whole)  # by name, in any order
        assert len(launches) == 1
        launch(_fill, (1,), low, 1, SIZE=8)  # another type of memory
        launch(_fill, (1,), whole, 1.0, SIZE=8)  # another type of number
        launch(_fill, (1,), whole, 1, SIZE=4)
        launch(_divide_all, (1,), whole, whole, whole, 8, SIZE=8)
    assert len(launches) == 5
    assert not whole.any()
    assert not low.any()
    kernel, arguments, options = next(iter(launches.values()))
    assert kernel is _fill
    assert arguments == (torch.float32, 1), "types stand for tensors, so that no memory is held"
    assert options == {"SIZE": 8}


def test_launches_are_made_again_after_collecting() -> None:
    room = torch.zeros(8, device=DEVICE)
    with pytest.raises(RuntimeError, match="stop"), collected_launches() as launches:
        raise RuntimeError("stop")
    launch(_fill, (1,), room, 3, SIZE=8)
    assert room.tolist() == [3] * 8
    assert launches == {}


class Compiled:
    """Stands for one of Triton's kernels, which compile for a GPU alone."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def warmup(self, *arguments: object, grid: tuple[int, ...], **options: object) -> None:
        self.calls.append((*arguments, grid, options))


def test_every_noted_launch_is_compiled() -> None:
    kernels = [Compiled() for _ in range(5)]
    launches: Launches = {(i,): (kernel, (torch.float32, i), {"SIZE": i}) for i, kernel in enumerate(kernels)}
    compile_launches(launches, torch.device("cpu"), threads=2)
    assert [kernel.calls for kernel in kernels] == [[(torch.float32, i, (1,), {"SIZE": i})] for i in range(5)]


def test_a_kernel_that_does_not_compile_is_not_passed_over() -> None:
    with pytest.raises(AttributeError):
        compile_launches({(0,): (object(), (), {})}, torch.device("cpu"), threads=2)
