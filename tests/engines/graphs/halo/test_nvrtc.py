"""Compiling for GPUs, which needs none; where NVRTC itself is missing, only what is said of that can be tested."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedfeast.engines.graphs.halo import nvrtc
from fedfeast.engines.graphs.halo.compiling import sources
from fedfeast.engines.graphs.halo.tiles import convolution_tiles

PROBE = (Path(__file__).parent / "probe.cuh").read_text()
MACROS = {"THREADS": 256, "MIN_BLOCKS": 1, "SHARED_BYTES": 1024}
H100 = (9, 0)


def has_compiler() -> bool:
    try:
        nvrtc.find_compiler()
    except RuntimeError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedfeast" / "kernels"


def compiled(source: str = PROBE, capability: tuple[int, int] = H100, **macros: int | str) -> bytes:
    return nvrtc.cached_machine_code(source, "probe.cuh", sources(), MACROS | macros, capability)


@needs_compiler
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0)])
def test_every_primitive_compiles_for_every_generation(capability: tuple[int, int]) -> None:
    code = compiled(capability=capability)
    assert code.startswith(b"\x7fELF")
    assert all(f".text.{name}".encode() in code for name in ("product", "convert", "sum", "pass_on", "rows"))


@needs_compiler
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize("backward", [0, 1])
def test_convolutions_compile_with_and_without_products_of_four_warps(
    capability: tuple[int, int], backward: int
) -> None:
    texts = sources()
    macros = convolution_tiles(16, 64, 24, 56).macros() | {
        "BACKWARD": backward, "STATISTICS": 1 - backward, "ADDED": 0, "MASKED": 0, "NORM": 0,
    }  # fmt: skip
    code = nvrtc.cached_machine_code(texts["convolution.cuh"], "convolution.cuh", texts, macros, capability)
    assert b".text.convolve" in code


@needs_compiler
def test_the_cache_knows_source_headers_macros_and_device(cache: Path) -> None:
    code = compiled()
    assert compiled() == code
    assert len(list(cache.iterdir())) == 1
    compiled(THREADS=128)
    compiled(capability=(8, 0))
    compiled(PROBE + "\n")
    nvrtc.cached_machine_code(PROBE, "probe.cuh", sources() | {"more.cuh": ""}, MACROS, H100)
    assert len(list(cache.iterdir())) == 5


@needs_compiler
@pytest.mark.parametrize("damage", [b"", b"short", bytes(5000)])
def test_a_damaged_entry_is_compiled_again(cache: Path, damage: bytes) -> None:
    code = compiled()
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    assert compiled() == code
    assert entry.read_bytes() == whole


@needs_compiler
def test_what_the_cache_holds_is_not_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = compiled()
    monkeypatch.setattr(nvrtc, "machine_code", None)
    assert compiled() == code


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.parent.write_text("a file where the folder would be")
    assert compiled().startswith(b"\x7fELF")


@needs_compiler
def test_several_compile_at_once(cache: Path) -> None:
    together = threading.Barrier(4)

    def one(threads: int) -> bytes:
        together.wait()
        return compiled(THREADS=threads)

    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(one, (64, 64, 128, 128)))
    shutil.rmtree(cache)
    assert at_once == [compiled(THREADS=threads) for threads in (64, 64, 128, 128)]


@needs_compiler
def test_a_source_with_an_error_is_refused_in_the_compilers_words() -> None:
    source = '#include "primitives.cuh"\nKERNEL(wrong)(int* out) { *out = missing; }\n'
    with pytest.raises(RuntimeError, match=r'probe.cuh does not compile with [^\n]*\n.*"missing" is undefined'):
        compiled(source)
    with pytest.raises(RuntimeError, match="sm_10"):
        compiled(capability=(1, 0))


def test_without_a_compiler_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_places", lambda: iter(["libnvrtc-that-is-nowhere.so"]))
    with pytest.raises(RuntimeError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.find_compiler.__wrapped__()


def test_the_compiler_of_torchs_cuda_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "cu11/lib/libnvrtc.so.11.2",
        "cu12/lib/libnvrtc.so.12",
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libnvrtc-builtins.so.13.0",
    ):
        (tmp_path / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / name).touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for version, first in (("13.0", "libnvrtc.so.13"), ("12.8", "libnvrtc.so.12"), ("11.8", "libnvrtc.so.11.2")):
        monkeypatch.setattr("torch.version.cuda", version)
        places = [Path(place).name for place in nvrtc._places()]
        assert places[0] == first
        assert "libnvrtc-builtins.so.13.0" not in places
