import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.gradient_plan import Size
from fedfeast.engines.graphs.halo.compiling import Launch, Program, Programs, sources
from fedfeast.engines.graphs.halo.nvrtc import cached_machine_code, has_compiler
from fedfeast.engines.graphs.kernels import normalisations, products, weight_gradients
from fedfeast.engines.graphs.kernels.compiling import plan_launches
from fedfeast.engines.graphs.kernels.geometry import Geometry, geometry_of
from fedfeast.engines.graphs.kernels.launching import Launches, collected_launches, launch
from fedfeast.engines.graphs.programs import Exchange, Memory, NetworkProgram
from fedfeast.federation import LocalSgd
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Compiles every kind of launch for the target of an H100 or H200, which takes no GPU, and prints what came out.
COMPILE = """
import json, re
from concurrent.futures import ThreadPoolExecutor
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.kernels.compiling import plan_launches
from fedfeast.engines.graphs.kernels.geometry import Geometry, geometry_of
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.federation import LocalSgd
from fedfeast.recipes import load_recipe
from fedfeast.planning.outline import outline

TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", int: "i32", float: "fp32"}

def compiled(one):
    kernel, arguments, options = one
    names = kernel.arg_names
    constants = {name: value for name, value in options.items() if name in names}
    types = [TYPES[value if isinstance(value, torch.dtype) else type(value)] for value in arguments]
    signature = dict(zip(names, types)) | dict.fromkeys(constants, "constexpr")
    assert list(signature) == list(names), kernel
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind.startswith("*")}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    settings = {name: value for name, value in options.items() if name not in names}
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=settings).asm["ptx"]
    copies = re.findall(r"cp\\.async\\.(c[ag])\\.shared\\.global \\[[^]]*\\], \\[[^]]*\\], (0x[0-9a-f]+|[0-9]+)", ptx)
    loads = sorted(set(re.findall(r"ld\\.global[\\w.:]*", ptx)))
    facts = {"copies": [(kind, int(size, 0)) for kind, size in copies], "loads": loads}
    return {"kernel": kernel.__name__, "options": constants, **facts}

method = outline(load_recipe("digits")).method
whole, counting = (
    GraphContext(method, LocalSgd(), Precision(), torch.device("cpu"), (16, 1, 8, 8), True, short_batches=short)
    for short in (False, True)
)
signed = outline(load_recipe("digits", {"network.branch": "signed"})).method
of_signed = GraphContext(signed, LocalSgd(), Precision(), torch.device("cpu"), (16, 1, 8, 8), True)
ends = {one[0].__name__: one for one in plan_launches(of_signed)[0].values() if one[2].get("SIGNED")}  # one of each
# Those that look up how many images count differ in a few lines: a sample of them will do.
launches = [*plan_launches(whole)[0].values(), *list(plan_launches(counting)[0].values())[::4], *ends.values()]
with ThreadPoolExecutor(2) as pool:
    for one in pool.map(compiled, launches):
        print(json.dumps(one))
"""


def context(
    batch: int, precision: Precision, in_cuda: bool = False, short: bool = False, branch: str = "rectified"
) -> GraphContext:
    method = outline(load_recipe("digits", {"network.branch": branch})).method
    return GraphContext(method, LocalSgd(), precision, DEVICE, (batch, 1, 8, 8), True, in_cuda, short)


def paper_context() -> GraphContext:
    """Return the paper's networks on its mini-batches, the smallest, the largest and a few between."""
    method = outline(load_recipe("cifar100-paper")).method
    shared = GraphContext(method, LocalSgd(), Precision(), torch.device("cpu"), (64, 3, 32, 32), True, in_cuda=True)
    shared.architectures = [*shared.architectures[::9], shared.largest]
    return shared


def one_pass(shared: GraphContext, architecture: Any) -> None:
    """Run an architecture forward and backward on real memory."""
    memory = Memory.of(shared)
    drawn = torch.from_numpy(named_generator(0).normal(size=shared.input_shape))
    images = drawn.to(DEVICE, shared.precision.activations).contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(len(images), dtype=torch.int64, device=DEVICE)
    batch = Batch(images, labels, labels, torch.ones((), device=DEVICE))
    num_images = torch.full((1,), len(images), dtype=torch.int32, device=DEVICE) if shared.counts_images else None
    program = NetworkProgram(shared, shared.blueprint(architecture), batch, memory, num_images)
    shapes = program.forward(None)
    program.backward(Exchange.of(shapes, torch.float32, DEVICE))


NamedMacros = tuple[str, tuple[tuple[str, int | str], ...]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[NamedMacros]:
    """The programs in CUDA C++ that launches on a CPU asked for; they do nothing there."""
    programs: set[NamedMacros] = set()

    class Nothing:
        def function(self, name: str, shared_bytes: int, threads: int) -> Launch:
            return lambda grid, arguments: None

    def load(program: Program, device: torch.device) -> Nothing:
        programs.add((program.source_name, tuple(program.macros.items())))
        return Nothing()

    monkeypatch.setattr(Program, "load", load)
    return programs


def named(programs: Programs) -> list[NamedMacros]:
    return [(one.source_name, tuple(one.macros.items())) for one in programs]


@pytest.mark.skipif(torch.cuda.is_available(), reason="programs are asked for on a CPU")
@pytest.mark.parametrize("short", [False, True], ids=["full batches", "short ones too"])
@pytest.mark.parametrize("in_cuda", [False, True], ids=["in Triton", "in CUDA C++ too"])
def test_the_plan_is_what_passes_launch(in_cuda: bool, short: bool, asked: set[NamedMacros]) -> None:
    shared = context(16, Precision(), in_cuda, short)
    with collected_launches() as launched:
        for architecture in shared.architectures:
            one_pass(shared, architecture)
    launches, programs = plan_launches(shared)
    assert launches.keys() == launched.keys()
    assert set(named(programs)) == asked
    assert len(programs) == len(asked), "each is planned once"
    assert (len(launches) > 20, len(programs) > 20) == (True, in_cuda)


def test_the_tables_that_passes_look_up_are_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    method = outline(load_recipe("cifar100-authors")).method
    shared = GraphContext(method, LocalSgd(), Precision(), torch.device("cpu"), (64, 3, 32, 32), True, in_cuda=True)
    looked_up: set[Size] = set()

    def note(*size: Any) -> Geometry:
        looked_up.add(size[:-1])
        return geometry_of(*size)

    monkeypatch.setattr(weight_gradients, "geometry_of", note)
    common = shared.plan(shared.largest).geometries
    others = set()
    for architecture in shared.architectures[1::5]:
        looked_up.clear()
        shared.architectures = [architecture]
        plan_launches(shared)
        assert shared.plan(architecture).geometries == looked_up
        others |= looked_up - common
    assert others, "no architecture stands for all"


def test_signed_branches_have_kernels_of_their_own_and_others_know_nothing_of_them() -> None:
    rectified, signed = (
        [dict(macros) for name, macros in named(plan_launches(shared)[1]) if name == "convolution.cuh"]
        for shared in (context(16, Precision(), in_cuda=True, branch=branch) for branch in ("rectified", "signed"))
    )
    assert not any("SIGNED" in macros for macros in rectified)
    assert {macros["MADE"] for macros in signed if "SIGNED" in macros} == {2, 3}
    assert not any(macros["MADE"] in (2, 3) for macros in signed if "SIGNED" not in macros)
    # Gradients pass no rectifier before the addition, neither where they are made nor where they are summed.
    assert {macros["NORM"] for macros in signed} == {0, 1, 3}
    assert 5 not in {macros["MADE"] for macros in signed}
    assert 5 in {macros["MADE"] for macros in rectified}
    assert {macros["NORM"] for macros in rectified} == {0, 1, 2}


def test_the_same_is_planned_in_the_same_order() -> None:
    first, second = (plan_launches(paper_context()) for _ in range(2))
    assert list(first[0]) == list(second[0])
    assert named(first[1]) == named(second[1])
    assert {name for name, _ in named(first[1])} == {"convolution.cuh", "weight_gradient.cuh"}


@pytest.mark.skipif(not has_compiler(), reason="NVRTC is not installed")
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_planned_programs_compile(capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = sources()

    def compiled(program: Program) -> bytes:
        headers = {name: text for name, text in texts.items() if name != program.source_name}
        source = texts[program.source_name]
        return cached_machine_code(source, program.source_name, headers, program.macros, capability)

    contexts = (
        context(16, Precision(), in_cuda=True),
        paper_context(),
        context(16, Precision(), True, branch="signed"),
    )
    planned = [list(plan_launches(one)[1]) for one in contexts]
    signed = [one for one in planned[2] if "SIGNED" in one.macros]
    sample = [*planned[0][::6], *planned[1][::24], *signed[::4]]
    assert len(sample) > 10
    with ThreadPoolExecutor(2) as pool:
        for code in pool.map(compiled, sample):
            assert code.startswith(b"\x7fELF")


def test_nothing_is_launched_that_was_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: Launches = {}

    def note_and_launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        with collected_launches() as noted:
            launch(kernel, grid, *arguments, **options)
        launched.update(noted)
        launch(kernel, grid, *arguments, **options)

    for module in (normalisations, products, weight_gradients):
        monkeypatch.setattr(module, "launch", note_and_launch)
    shared = context(2, Precision(torch.float32, torch.float32))
    one_pass(shared, shared.architectures[0])
    monkeypatch.undo()
    planned, programs = plan_launches(shared)
    assert not programs
    assert launched.keys() <= planned.keys()
    assert len(launched) > 10


def test_planning_takes_no_memory_and_leaves_launching_as_it_was() -> None:
    launches, _ = plan_launches(context(16, Precision()))
    for _, arguments, _ in launches.values():
        assert not any(isinstance(argument, torch.Tensor) for argument in arguments)
    features = torch.ones(2, 3, 4, 4, device=DEVICE).contiguous(memory_format=torch.channels_last)
    assert normalisations.pool(features, 2).flatten().tolist() == [1.0] * 24


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    environment["PYTHONPATH"] = str(Path(__file__).parents[4] / "src")
    command = [sys.executable, "-c", COMPILE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles_for_a_large_device(compiled: list[dict[str, Any]]) -> None:
    counting = [one for one in compiled if one["options"]["COUNTED"]]
    signed = [one for one in compiled if one["options"].get("SIGNED")]
    assert {one["kernel"] for one in signed} == {"_input_gradient", "_normalise", "_sum_gradients"}
    assert len(compiled) - len(counting) - len(signed) == len(plan_launches(context(16, Precision()))[0])
    assert len({one["kernel"] for one in counting}) > 4
    assert {one["kernel"] for one in compiled} >= {
        "_convolve",
        "_input_gradient",
        "_weight_gradient",
        "_normalise",
        "_sum_gradients",
        "_norm_gradient",
        "_pool",
    }


@pytest.mark.parametrize("kernel", ["_convolve", "_input_gradient"])
def test_products_copy_sixteen_bytes_at_a_time(compiled: list[dict[str, Any]], kernel: str) -> None:
    # Hints get lost without a word, in an inlined function for one; two bytes at a time take twice as long.
    wide = [one for one in compiled if one["kernel"] == kernel and one["options"]["IN_VECTOR"] == 8]
    assert len(wide) > 5
    for one in wide:
        assert ["cg", 16] in one["copies"], one
        assert min(size for _, size in one["copies"]) >= 8, one
        assert not any(load.endswith("16") for load in one["loads"]), one


def loads_whole_vectors(one: dict[str, Any]) -> bool:
    loads = one["loads"]
    return any(load.endswith(".v4.b32") for load in loads) and not any(load.endswith("16") for load in loads)


def test_weight_gradients_load_sixteen_bytes_at_a_time(compiled: list[dict[str, Any]]) -> None:
    kernels = [one for one in compiled if one["kernel"] == "_weight_gradient"]
    wide = [one for one in kernels if one["options"]["PLAIN_VECTOR"] == one["options"]["SHIFTED_VECTOR"] == 8]
    assert len(wide) > 5
    for one in wide:
        assert loads_whole_vectors(one), one


@pytest.mark.parametrize("kernel", ["_normalise", "_sum_gradients", "_norm_gradient"])
def test_normalisations_load_sixteen_bytes_at_a_time(compiled: list[dict[str, Any]], kernel: str) -> None:
    for one in compiled:
        if one["kernel"] == kernel and one["options"]["VECTOR"] == 8:
            assert loads_whole_vectors(one), one
