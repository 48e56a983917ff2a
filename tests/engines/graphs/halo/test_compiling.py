from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from engines.graphs.halo.emulated import EmulatedDevice

from fedfeast.engines.graphs.halo import compiling
from fedfeast.engines.graphs.halo.compiling import Kernel, Program, collected_programs, load_programs
from fedfeast.engines.graphs.halo.nvrtc import Macros

HERE = Path(__file__).parent
CPU = torch.device("cpu")
MACROS = {"THREADS": 64, "MIN_BLOCKS": 1, "SHARED_BYTES": 1024}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources loaded for the CPU, which are those beside the tests, each time that one is."""
    names: list[str] = []

    def load(source_name: str, macros: Macros, device: torch.device) -> EmulatedDevice:
        names.append(source_name)
        return EmulatedDevice(HERE / source_name, macros)

    monkeypatch.setitem(compiling.LOADERS, "cpu", load)
    return names


def places(kernel: Kernel, grid: tuple[int, int, int], device: str = "cpu") -> torch.Tensor:
    out = torch.zeros(grid[0], 4, dtype=torch.int32, device=device)
    kernel.launch(grid, out)
    return out


def test_a_kernel_is_loaded_at_its_first_launch(loaded: list[str]) -> None:
    kernel = Program("probe.cuh", MACROS).kernel("places", 0, 64)
    assert loaded == []
    assert places(kernel, (2, 1, 1)).tolist() == [[0, 0, 0, 1], [1, 0, 0, 1]]
    assert places(kernel, (1, 1, 1)).tolist() == [[0, 0, 0, 1]]
    assert loaded == ["probe.cuh"]


def test_tensors_without_memory_note_programs_down(loaded: list[str]) -> None:
    program, other = (Program("probe.cuh", MACROS | {"SHARED_BYTES": size}) for size in (512, 1024))
    places(program.kernel("places", 0, 64), (2, 1, 1))  # a kernel already on the CPU is told from one without memory
    with collected_programs() as programs:
        for one in (program, other, program):
            places(one.kernel("places", 0, 64), (2, 1, 1), "meta")
    assert list(programs) == [program, other]
    load_programs(programs, CPU, threads=2)
    assert loaded == ["probe.cuh"] * 2


def test_threads_load_a_program_once(loaded: list[str]) -> None:
    program = Program("probe.cuh", MACROS)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: id(program.load(CPU)), range(8)))) == 1
    assert loaded == ["probe.cuh"]


def test_the_package_has_its_sources() -> None:
    assert "primitives.cuh" in compiling.sources()
    assert all(text.startswith("//") for text in compiling.sources().values())


@pytest.mark.usefixtures("emulated_kernels")
def test_sources_of_the_package_are_emulated() -> None:
    loaded = Program("primitives.cuh", MACROS).load(CPU)
    assert isinstance(loaded, EmulatedDevice)


def test_a_launch_has_the_blocks_that_its_kernel_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[tuple[tuple[int, ...], Sequence[object]]] = []

    class Recording:
        def function(self, name: str, shared_bytes: int, threads: int) -> compiling.Launch:
            return lambda grid, arguments: launches.append((grid, [name, shared_bytes, threads, *arguments[1:]]))

    monkeypatch.setitem(compiling.LOADERS, "cpu", lambda *_: Recording())
    Program("probe.cuh", MACROS).kernel("any", 7, 64).launch((3, 2, 1), torch.zeros(1), 5, None, 0.5)
    assert launches == [((3, 2, 1), ["any", 7, 64, 5, None, 0.5])]


@pytest.mark.gpu
def test_programs_are_loaded_ahead_and_run_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "sources", lambda: {name: (folder / name).read_text() for name, folder in FILES})
    programs = [Program("probe.cuh", MACROS | {"THREADS": threads}) for threads in (32, 64, 128, 256)]
    load_programs(programs, torch.device("cuda", 0), threads=4)
    for program in programs:
        kernel = program.kernel("places", 60_000, int(program.macros["THREADS"]))
        assert places(kernel, (2, 1, 1), "cuda").tolist() == [[0, 0, 0, 1], [1, 0, 0, 1]]


FILES = (("probe.cuh", HERE), ("primitives.cuh", Path(compiling.__file__).parent))
