"""Loading and launching: with a driver that records what it is given, and on a GPU where there is one."""

import ctypes
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from engines.graphs.halo.emulated import compile_emulated

from fedfeast.engines.graphs.halo import driver
from fedfeast.engines.graphs.halo.compiling import sources
from fedfeast.engines.graphs.halo.nvrtc import cached_machine_code

HERE = Path(__file__).parent
GPU = torch.device("cuda", 0)
MACROS = {"THREADS": 256, "MIN_BLOCKS": 1, "SHARED_BYTES": 1024}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("driver") / "libcuda.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(HERE / "recording_driver.cpp"), "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


@pytest.fixture
def recording(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The driver that records, instead of the device's; torch's stream is number 77."""
    monkeypatch.setattr(driver, "find_driver", lambda: library)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 77 + index, raising=False)
    driver._context_of.cache_clear()
    yield library
    driver._context_of.cache_clear()


def last_launch(library: ctypes.CDLL) -> tuple[list[int], tuple[int, int, float, int]]:
    launched = (ctypes.c_longlong * 8).in_dll(library, "launched")
    arguments = (ctypes.c_char * 64).in_dll(library, "arguments")
    return list(launched[:6]), struct.unpack_from("PifP", arguments.raw)


def test_a_launch_passes_grid_stream_and_arguments(recording: ctypes.CDLL) -> None:
    function = driver.LoadedCode(b"code", GPU).function("kernel", 1000, 128)
    tensor = torch.zeros(4)
    function((5, 6, 7), (tensor, -3, 0.5, None))
    assert last_launch(recording) == ([5, 6, 7, 128, 1000, 77], (tensor.data_ptr(), -3, 0.5, 0))
    function((1, 1, 1), (tensor[1:], 2**31 - 1, 3, tensor))
    assert last_launch(recording) == (
        [1, 1, 1, 128, 1000, 77],
        (tensor.data_ptr() + 4, 2**31 - 1, 3.0, tensor.data_ptr()),
    )


def test_arguments_of_another_kind_or_number_are_refused(recording: ctypes.CDLL) -> None:
    function = driver.LoadedCode(b"code", GPU).function("kernel", 0, 128)
    tensor = torch.zeros(4)
    function((1, 1, 1), (tensor, 1, 0.5, tensor))
    with pytest.raises(struct.error):
        function((1, 1, 1), (tensor, 0.25, 0.5, tensor))
    with pytest.raises(ValueError, match="argument"):
        function((1, 1, 1), (tensor, 1, 0.5))
    with pytest.raises(ValueError, match="argument"):
        function((1, 1, 1), (tensor, 1, 0.5, tensor, 2))


def test_more_shared_memory_is_asked_for(recording: ctypes.CDLL) -> None:
    code = driver.LoadedCode(b"code", GPU)
    large = code.function("kernel", 100_000, 128)
    large((1, 1, 1), (None, 1, 0.5, None))
    assert last_launch(recording)[0] == [1, 1, 1, 128, 100_000, 77]
    with pytest.raises(RuntimeError, match="CUDA driver: "):
        code.function("kernel", 300_000, 128)


def test_a_thread_without_a_context_gets_it(recording: ctypes.CDLL) -> None:
    function = driver.LoadedCode(b"code", GPU).function("kernel", 0, 128)
    ctypes.c_int.in_dll(recording, "lost_context").value = 1
    function((9, 1, 1), (None, 1, 0.5, None))
    assert last_launch(recording)[0][0] == 9
    assert ctypes.c_int.in_dll(recording, "current_contexts").value == 0


def test_threads_launch_the_same_kernel(recording: ctypes.CDLL) -> None:
    function = driver.LoadedCode(b"code", GPU).function("kernel", 0, 128)
    before = (ctypes.c_longlong * 8).in_dll(recording, "launched")[6]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: function((1, 1, 1), (None, number, 0.5, None)), range(200)))
    assert (ctypes.c_longlong * 8).in_dll(recording, "launched")[6] == before + 200


def test_what_the_driver_refuses_is_said(recording: ctypes.CDLL) -> None:
    with pytest.raises(RuntimeError, match="CUDA driver: device kernel image is invalid"):
        driver.LoadedCode(b"nonsense", GPU)
    with pytest.raises(RuntimeError, match="CUDA driver: named symbol not found"):
        driver.LoadedCode(b"code", GPU).function("missing", 0, 128)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_without_a_driver_it_is_said() -> None:
    with pytest.raises(RuntimeError, match="The CUDA driver was not found"):
        driver.find_driver()


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [0, 1])
def test_the_device_and_the_emulation_agree(transposed: int) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(shape, generator=generator).bfloat16() for shape in ((48, 64), (64, 72)))
    stored = (a.T.contiguous(), b) if transposed else (a, b.T.contiguous())
    emulated, on_device = torch.zeros(48, 72), torch.zeros(48, 72, device=GPU)
    compile_emulated(HERE / "probe.cuh", MACROS).launch(
        "product", (3, 2, 1), 256, 8 * 768, *stored, emulated, 48, 72, 64, transposed
    )
    capability = torch.cuda.get_device_capability(GPU)
    code = cached_machine_code((HERE / "probe.cuh").read_text(), "probe.cuh", sources(), MACROS, capability)
    function = driver.LoadedCode(code, GPU).function("product", 100_000, 256)
    function((3, 2, 1), (*(one.to(GPU) for one in stored), on_device, 48, 72, 64, transposed))
    torch.testing.assert_close(on_device.cpu(), emulated, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_a_launch_is_captured_in_a_graph() -> None:
    capability = torch.cuda.get_device_capability(GPU)
    code = cached_machine_code((HERE / "probe.cuh").read_text(), "probe.cuh", sources(), MACROS, capability)
    function = driver.LoadedCode(code, GPU).function("places", 0, 256)
    places, graph = torch.zeros(2, 4, dtype=torch.int32, device=GPU), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function((2, 1, 1), (places,))
    assert not places.any()
    graph.replay()
    assert places.tolist() == [[0, 0, 0, 1], [1, 0, 0, 1]]
