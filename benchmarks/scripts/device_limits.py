"""Measure what a GPU can do and what single kernels of a pass take of it, alone and twelve side by side.

python benchmarks/scripts/device_limits.py
ncu --clock-control none --metrics METRICS python benchmarks/scripts/device_limits.py --once
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.halo import convolution
from fedfeast.engines.graphs.halo.compiling import collected_programs, load_programs
from fedfeast.engines.graphs.halo.tiles import weight_tiles
from fedfeast.engines.graphs.halo.weight_gradient import Layer, weight_gradients
from fedfeast.engines.graphs.kernels.features import Features, Norm, Statistics, Then
from fedfeast.engines.graphs.kernels.normalisations import norm_gradient, normalise, sum_gradients
from fedfeast.engines.graphs.kernels.products import convolve, input_gradient
from fedfeast.engines.graphs.kernels.weight_gradients import weight_gradient
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.tiles import weight_cut
from fedfeast.networks.layers import EPSILON

BATCH = 64
SIDE_BY_SIDE = 12  # passes at work, about, in a round of the paper's recipe
LAYERS = 6  # of one size whose weights' gradients are one launch
STAGES = {"stage 1": (80, 8, 32), "stage 2": (208, 24, 16), "stage 3": (360, 40, 8), "stage 4": (720, 72, 4)}

Work = Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """What to launch, in which language, and the bytes that it must move between memory and registers at least."""

    language: str
    name: str
    work: Work
    least_bytes: int


@triton.jit
def _read(source, out, num_blocks, SIZE: tl.constexpr):
    total = tl.zeros((SIZE,), dtype=tl.float32)
    for block in range(tl.program_id(0), num_blocks * 8, tl.num_programs(0)):
        total += tl.load(source + (block % num_blocks) * SIZE + tl.arange(0, SIZE), cache_modifier=".cg")
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _nothing(source):
    pass


def captured(work: Work, repeats: int, stream: torch.cuda.Stream | None = None) -> torch.cuda.CUDAGraph:
    """Return a graph that does the same work again and again."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            work()
    return graph


def milliseconds(work: Work, repeats: int = 20) -> float:
    """Return the mean time of work that has the device to itself."""
    graph = captured(work, repeats)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    start.record()
    for _ in range(3):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / (3 * repeats)


def milliseconds_side_by_side(works: Sequence[Work], repeats: int = 25) -> float:
    """Return the time that each of several works takes of a device on which all run at once."""
    streams = [torch.cuda.Stream() for _ in works]  # type: ignore[no-untyped-call]
    graphs = [captured(work, repeats, stream) for work, stream in zip(works, streams, strict=True)]
    taken = 0.0
    for _ in range(2):  # the first time is not counted
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        taken = time.perf_counter() - begin
    return 1e3 * taken / (repeats * len(works))


def show_limits() -> None:
    """Print how fast caches and memory are read, and what an empty kernel takes."""
    out = torch.zeros(4096, device="cuda")
    programs = 8 * torch.cuda.get_device_properties(0).multi_processor_count
    for megabytes in (8, 16, 24, 32, 48, 64, 512):
        values = torch.rand(megabytes * 2**18, device="cuda")
        blocks = values.numel() // 4096
        taken = milliseconds(lambda: _read[(programs,)](values, out, blocks, SIZE=4096, num_warps=8))  # noqa: B023
        rate = 8 * values.nbytes / taken / 1e9
        print(f"reading {megabytes} MiB again and again, past the first cache: {rate:.2f} TB/s")
    big = torch.rand(2**28, device="cuda")
    other = torch.empty_like(big)
    print(f"copy of 1 GiB: {2 * big.nbytes / milliseconds(lambda: other.copy_(big), 5) / 1e9:.2f} TB/s")
    print(f"581 empty kernels in a graph: {1e3 * milliseconds(lambda: _nothing[(1,)](out), 581):.2f} us each")


def drawn(device: str, *shape: int) -> Tensor:
    """Return channels-last values; on the device "meta", without memory."""
    values = torch.empty(shape, dtype=torch.bfloat16, device=device, memory_format=torch.channels_last)
    return values if device == "meta" else values.normal_()


def drawn_norm(features: Tensor) -> Norm:
    """Return a normalisation with some numbers for every channel."""
    mean, deviation, scale, shift, by_scale, by_shift = torch.ones((6, features.shape[1]), device=features.device)
    return Norm(features, Statistics(mean, deviation), scale, shift, by_scale, by_shift)


def block_kernels(channels: int, middle: int, side: int, device: str = "cuda") -> list[Kernel]:
    """Return the kernels of a block: elementwise ones, and products in both languages."""
    shape_wide, shape_narrow = (BATCH, channels, side, side), (BATCH, middle, side, side)
    wide, by_wide, before_wide = (drawn(device, *shape_wide) for _ in range(3))
    narrow, by_narrow, before_narrow = (drawn(device, *shape_narrow) for _ in range(3))
    conv1, conv2 = drawn(device, middle, channels, 3, 3), drawn(device, channels, middle, 3, 3)
    norm1, norm2 = drawn_norm(before_narrow), drawn_norm(before_wide)
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    pixels, t, n = BATCH * side * side, wide.nbytes, narrow.nbytes
    cuts = [weight_cut(pixels, *sizes, 9, 1) for sizes in ((channels, middle), (middle, channels))]
    room = torch.empty(max(cut.parts for cut in cuts) * conv1.numel(), device=device)
    tiles = weight_tiles(side, BATCH, channels, middle)
    assert tiles is not None
    rooms = [torch.empty(tiles.parts * conv1.numel(), device=device) for _ in range(LAYERS)]
    layers = [
        Layer(wide, by_narrow, one) if place % 2 else Layer(narrow, by_wide, one) for place, one in enumerate(rooms)
    ]
    inside, between = Then(norm=norm1, rectified_by_norm=True), Then(by_wide, wide, norm2)
    of_block = Features(before_wide, wide, norm2, made=2)
    of_hidden = Features(before_narrow, norm=norm1, made=1)
    by_conv2 = Features(by_wide, before_wide, norm2, made=5)
    by_conv1 = Features(by_narrow, before_narrow, norm1, made=4)
    return [
        Kernel("Triton", "normalise and add", lambda: normalise(norm2, wide), 3 * t),
        Kernel("Triton", "normalise", lambda: normalise(norm1), 2 * n),
        Kernel("Triton", "norm gradient, wide", lambda: norm_gradient(by_wide, norm2, True), 3 * t),
        Kernel("Triton", "norm gradient, narrow", lambda: norm_gradient(by_narrow, norm1, False), 3 * n),
        Kernel("Triton", "sum of gradients", lambda: sum_gradients(by_wide, norm2, counters), 2 * t),
        Kernel("Triton", "conv1", lambda: convolve(wide, conv1, 1, counters, EPSILON), t + n),
        Kernel("CUDA", "conv1", lambda: convolution.convolve(Features(wide), conv1, counters, EPSILON), t + n),
        Kernel("CUDA", "conv1, made", lambda: convolution.convolve(of_block, conv1, counters, EPSILON), 3 * t + n),
        Kernel("Triton", "conv2", lambda: convolve(narrow, conv2, 1, counters, EPSILON), t + n),
        Kernel("CUDA", "conv2", lambda: convolution.convolve(Features(narrow), conv2, counters, EPSILON), t + n),
        Kernel("CUDA", "conv2, made", lambda: convolution.convolve(of_hidden, conv2, counters, EPSILON), t + 2 * n),
        Kernel(
            "Triton", "input gradient 2",
            lambda: input_gradient(by_wide, conv2, narrow, 1, counters, norm=norm1, rectified_by_norm=True), t + 2 * n,
        ),
        Kernel(
            "CUDA", "input gradient 2",
            lambda: convolution.input_gradient(Features(by_wide), conv2, counters, inside), t + 2 * n,
        ),
        Kernel(
            "CUDA", "input gradient 2, made",
            lambda: convolution.input_gradient(by_conv2, conv2, counters, inside), 3 * t + 2 * n,
        ),
        Kernel(
            "Triton", "input gradient 1",
            lambda: input_gradient(by_narrow, conv1, wide, 1, counters, added=by_wide, masked_by=wide, norm=norm2),
            4 * t + n,
        ),
        Kernel(
            "CUDA", "input gradient 1",
            lambda: convolution.input_gradient(Features(by_narrow), conv1, counters, between), 4 * t + n,
        ),
        Kernel(
            "CUDA", "input gradient 1, made",
            lambda: convolution.input_gradient(by_conv1, conv1, counters, between), 4 * t + 3 * n,
        ),
        Kernel(
            "Triton", "weight gradient 1", lambda: weight_gradient(wide, by_narrow, 1, 3, room, cuts[0]), t + n
        ),
        Kernel(
            "Triton", "weight gradient 2", lambda: weight_gradient(narrow, by_wide, 1, 3, room, cuts[1]), t + n
        ),
        Kernel(
            "CUDA", f"{LAYERS} weight gradients", lambda: weight_gradients(layers, tiles), LAYERS * (t + n)
        ),
    ]  # fmt: skip


def compile_programs() -> None:
    """Compile the kernels in CUDA C++ on all cores, found on tensors without memory."""
    with collected_programs() as programs:
        for shape in STAGES.values():
            for kernel in block_kernels(*shape, device="meta"):
                if kernel.language == "CUDA":
                    kernel.work()
    load_programs(programs, torch.device("cuda", torch.cuda.current_device()), len(os.sched_getaffinity(0)))


def main() -> None:
    """Print the limits of the device, then what every kernel takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="launch every kernel twice and measure nothing")
    arguments = parser.parse_args()
    compile_programs()
    if not arguments.once:
        show_limits()
    for stage, shape in STAGES.items():
        if arguments.once:
            for kernel in block_kernels(*shape):
                kernel.work()
                kernel.work()
            continue
        sets = [block_kernels(*shape) for _ in range(SIDE_BY_SIDE)]
        for same in zip(*sets, strict=True):
            kernel = same[0]
            alone, beside = milliseconds(kernel.work), milliseconds_side_by_side([one.work for one in same])
            rate = kernel.least_bytes / beside / 1e9
            print(
                f"{stage} {kernel.language} {kernel.name}: {1e3 * alone:.1f} us alone, {1e3 * beside:.1f} us of "
                f"{SIDE_BY_SIDE} side by side, {rate:.2f} TB/s of {kernel.least_bytes / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
