"""The emulation does what the device would, and shows what would go wrong there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engines.graphs.halo.emulated import Counts, Emulated, compile_emulated

HERE = Path(__file__).parent
PROBE = HERE / "probe.cuh"
SHARED_BYTES = 8 * 768
MACROS = {"THREADS": 256, "MIN_BLOCKS": 1, "SHARED_BYTES": SHARED_BYTES}

# Each fault in a process of its own, because it ends it.
FAULTS = """
import os, torch
from engines.graphs.halo.emulated import compile_emulated
from engines.graphs.halo.test_emulation import MACROS, PROBE, SHARED_BYTES
values, probe = torch.zeros(1024), compile_emulated(PROBE, MACROS)
for fault in range(8):
    child = os.fork()
    if not child:
        probe.launch("faults", (2,), 32, SHARED_BYTES, values, fault)
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
MESSAGES = (
    "a 16-byte access is not aligned to 16 bytes",
    "an access to shared memory lies outside of the block's shared memory",
    "an access to shared memory lies outside of the block's shared memory",
    "something was written beside the block's shared memory",
    "the lanes of a warp diverge: lane 0 is at synchronise_warp, lane 5 at the kernel's end",
    "an access to shared memory lies outside of the block's shared memory",
    "a 16-byte access is not aligned to 16 bytes",
)


@pytest.fixture(scope="module")
def probe() -> Emulated:
    return compile_emulated(PROBE, MACROS)


@pytest.mark.parametrize("early_copies", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_loaded_and_multiplied(probe: Emulated, transposed: bool, early_copies: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(48, 64, generator=generator).bfloat16()
    b = torch.randn(64, 72, generator=generator).bfloat16()
    product = torch.zeros(48, 72)
    stored = (a.T.contiguous(), b) if transposed else (a, b.T.contiguous())
    sizes = (48, 72, 64, int(transposed))
    probe.launch("product", (3, 2), 256, SHARED_BYTES, *stored, product, *sizes, early_copies=early_copies)
    torch.testing.assert_close(product, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


def test_matrices_are_stored_as_they_were_loaded(probe: Emulated) -> None:
    rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(5)).bfloat16()
    out = torch.zeros(48, 8).bfloat16()
    probe.launch("pass_matrices", (1,), 32, 2048, rows, out)
    assert torch.equal(out[:32], rows.flip(0))
    assert torch.equal(out[32:], rows[:16])


def test_values_are_rounded_as_torch_rounds_them(probe: Emulated) -> None:
    generator = torch.Generator().manual_seed(4)
    bits = torch.randint(-(2**31), 2**31 - 1, (1000,), generator=generator, dtype=torch.int32)
    halfway = torch.tensor([0x3F808000, 0x3F818000, 0x7F800000, 0x7F7FFFFF, 0x00018000, 0], dtype=torch.int32)
    values = torch.cat([bits, halfway]).view(torch.float32)
    values = torch.where(values.isnan(), 1.0, values)
    pairs = torch.zeros_like(values, dtype=torch.int32)
    lows, highs, rounded, roots = (torch.zeros_like(values) for _ in range(4))
    probe.launch("convert", (4,), 256, 0, values, pairs, lows, highs, rounded, roots, len(values))
    expected = values.bfloat16().float()
    assert torch.equal(lows, expected)
    assert torch.equal(highs, expected.flip(0))
    assert torch.equal(rounded, expected)
    assert torch.equal(pairs.view(torch.bfloat16).view(-1, 2)[:, 0].float(), expected)
    torch.testing.assert_close(roots, values.rsqrt(), equal_nan=True)


def test_the_last_block_sums_what_all_left(probe: Emulated) -> None:
    values = torch.arange(5 * 256, dtype=torch.float32) % 17
    partial, total, counter = torch.zeros(5), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    probe.launch("sum", (5,), 256, 64, values, partial, total, counter, 0.5)
    assert total.item() == values.sum().item() / 2 + 5 * 4 * 3
    assert counter.item() == 0


def test_every_block_of_a_grid_runs(probe: Emulated) -> None:
    places = torch.zeros(3, 5, 2, 4, dtype=torch.int32)
    probe.launch("places", (2, 5, 3), 256, 0, places)
    z, y, x = (one.int() for one in torch.meshgrid(*map(torch.arange, (3, 5, 2)), indexing="ij"))
    assert torch.equal(places, torch.stack([x, y, z, torch.full_like(x, 3)], dim=-1))


def passed_on(probe: Emulated, *flags: bool, early_copies: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a block passed on, and what it should have."""
    cells = torch.arange(256 * 4, dtype=torch.int32).view(256, 4) + 1
    out = torch.zeros_like(cells)
    flags_in_full = [int(flag) for flag in (*flags, False, False, False)[:3]]
    probe.launch("pass_on", (1,), 256, 256 * 16, cells, out, *flags_in_full, early_copies=early_copies)
    cells[1::2] = 0
    return out, cells.roll(-32, 0)


@pytest.mark.parametrize("early_copies", [False, True])
def test_copies_arrive_and_fill_with_zeros(probe: Emulated, early_copies: bool) -> None:
    out, expected = passed_on(probe, early_copies=early_copies)
    assert torch.equal(out, expected)


def test_a_missing_wait_shows_memory_that_was_never_written(probe: Emulated) -> None:
    out, _ = passed_on(probe, True)
    assert (out == 0x7FC17FC1).all()
    assert out.view(torch.bfloat16).isnan().all()


def test_a_missing_barrier_shows(probe: Emulated) -> None:
    out, expected = passed_on(probe, False, True)
    assert not torch.equal(out, expected)


def test_memory_that_a_later_copy_overwrites_shows_where_copies_are_early(probe: Emulated) -> None:
    out, expected = passed_on(probe, False, False, True)
    assert torch.equal(out, expected)
    out, expected = passed_on(probe, False, False, True, early_copies=True)
    assert not torch.equal(out, expected)


def test_bank_conflicts_are_counted(probe: Emulated) -> None:
    for distance, passes in ((16, 1), (32, 2), (128, 8), (144, 1), (0, 1)):
        before = probe.counts()
        probe.launch("rows", (1,), 32, 2048, distance)
        after = probe.counts()
        assert after == Counts(before.multiplications, before.row_groups + 4, before.row_group_passes + 4 * passes), (
            distance
        )


def test_faults_end_the_process_with_a_message(probe: Emulated) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(int(signal.SIGABRT))] * len(MESSAGES) + ["0"]
    said = re.findall(r"^emulation: (.*) \(block .*\)$", done.stderr, re.MULTILINE)
    assert said == list(MESSAGES)


def test_arguments_of_other_kinds_are_refused(probe: Emulated) -> None:
    with pytest.raises(TypeError, match="Kernel rows takes arguments 'i' and was given 'f'"):
        probe.launch("rows", (1,), 32, 2048, 16.0)


def test_a_source_with_an_error_is_refused_in_the_compilers_words(tmp_path: Path) -> None:
    (tmp_path / "wrong.cuh").write_text('#include "primitives.cuh"\nKERNEL(wrong)(int* out) { *out = missing; }\n')
    with pytest.raises(RuntimeError, match="missing"):
        compile_emulated(tmp_path / "wrong.cuh", MACROS)
