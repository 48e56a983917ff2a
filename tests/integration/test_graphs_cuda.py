"""The graph engine on a CUDA device: equal to the eager one, deterministic, and within its memory and time."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedfeast
from fedfeast.data import (
    Batch,
)
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.halo.nvrtc import has_compiler
from fedfeast.engines.graphs.memory import Arrangement
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.streams import new_pool, new_stream
from fedfeast.federation import Assignment, LocalSgd, RoundOrder, RoundResult, mixed_cross_entropy
from fedfeast.methods import METHODS, Feast
from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.networks import Architecture
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_sgd
from fedfeast.runs import Interrupted
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.runs.training import Silent

from .conftest import AUGMENTED, SHORT_ON_CUDA

pytestmark = pytest.mark.gpu

RATE = 0.1
WHOLE = Precision(torch.float64, torch.float64)
LOSS_TOLERANCE = 1e-5  # relative, of float32 without TF32
MIB = 2**20
GRADIENT_TOLERANCE = 1e-2  # norm of the difference over the norm; an H200 gives 9e-4 (smallest), 9e-3 (largest)
SHORT = {**SHORT_ON_CUDA, "engine.name": "graphs"}
AUTHORS_OPTIMISER = {"training__momentum": 0.9, "training__last_batch": "short", "training__unreached": "keep"}


def federation(**settings: Any) -> Federation:
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    built = assemble(load_recipe("digits", {**AUGMENTED, "engine.device": "cuda", **dotted}))
    assert built.device.type == "cuda"
    return built


def cohort(built: Federation, count: int) -> list[Assignment]:
    # Of the whole range of budgets, so that some clients hold much and train long.
    by_budget = sorted((built.clients[index] for index in built.participants), key=lambda one: one.budget_macs)
    chosen = [by_budget[int(place)] for place in np.linspace(0, len(by_budget) - 1, count)]
    state, flat = built.method.initial_state(), built.initial_weights()
    return built.method.plan_round(state, flat, chosen, 0, named_generator(0))[0]


@pytest.mark.parametrize("rule", ["full", "global-min", "local-max", "min-max", "min-max-distilled"])
def test_a_round_equals_the_eager_engines_in_float64(rule: TrainingRule) -> None:
    equals_eager(federation(method__rule=rule, engine__precision="float64"))


@pytest.mark.parametrize("method", METHODS)
def test_a_round_of_every_method_equals_the_eager_engines_in_float64(method: str) -> None:
    equals_eager(federation(method__name=method, engine__precision="float64"))


@pytest.mark.parametrize("method", METHODS)
def test_rounds_with_momentum_and_short_batches_equal_the_eager_engines_in_float64(method: str) -> None:
    equals_eager(federation(method__name=method, engine__precision="float64", **AUTHORS_OPTIMISER))


def test_rounded_rounds_with_short_batches_give_the_same_bits_twice_and_are_as_near_as_others() -> None:
    distances = {
        last_batch: rounded_distance(federation(**AUTHORS_OPTIMISER | {"training__last_batch": last_batch}))
        for last_batch in ("topped-up", "short")
    }
    print(f"distances {distances}")
    assert distances["short"] < 1.5 * distances["topped-up"]


def test_rounded_rounds_with_signed_branches_give_the_same_bits_twice_and_are_as_near_as_others() -> None:
    distances = {
        branch: rounded_distance(federation(network__branch=branch, network__branch_scale=0.2))
        for branch in ("rectified", "signed")
    }
    print(f"distances {distances}")
    assert distances["signed"] < 1.5 * distances["rectified"]


def rounded_distance(built: Federation) -> float:
    """Return how far a round in bfloat16 is from the eager engine's, as a share of the way that this goes."""
    sgd = build_sgd(built.recipe, built.method)
    parts = (built.method, built.examples, built.preparation, sgd, built.recipe.seed)
    planned, flat = cohort(built, 6), built.initial_weights()
    order = RoundOrder(flat, planned, 0, 0.02)
    one, other = (GraphEngine(*parts, Precision(), built.device).run_round(order) for _ in range(2))
    assert torch.equal(one.flat, other.flat)
    expected = EagerEngine(*parts, torch.float32, built.device).run_round(order)
    assert one.losses == pytest.approx(expected.losses, rel=0.03)
    return float((one.flat - expected.flat).norm() / (expected.flat - flat).norm())


def equals_eager(built: Federation) -> None:
    sgd = build_sgd(built.recipe, built.method)
    parts = (built.method, built.examples, built.preparation, sgd, built.recipe.seed)
    planned, flat = cohort(built, 6), built.initial_weights()
    expected = EagerEngine(*parts, torch.float64, built.device).run_round(RoundOrder(flat, planned, 0, RATE))
    engine = GraphEngine(*parts, WHOLE, built.device)
    assert not engine.context.fused
    got = engine.run_round(RoundOrder(flat, planned, 0, RATE))
    assert got.num_steps == expected.num_steps >= 12
    assert float((got.flat - expected.flat).norm() / (expected.flat - flat).norm()) < 1e-6
    assert got.losses == pytest.approx(expected.losses, rel=1e-6)


@pytest.fixture
def _products_of_whole_floats() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@cache
def paper_method() -> Feast:
    method = outline(load_recipe("cifar100-paper", {})).method
    assert isinstance(method, Feast)
    return method


def random_batch() -> Batch:
    generator = named_generator(0, "batch")
    images = torch.from_numpy(generator.normal(size=(64, 3, 32, 32))).float().cuda()
    labels = [torch.from_numpy(generator.integers(0, 100, 64)).cuda() for _ in range(2)]
    return Batch(images.contiguous(memory_format=torch.channels_last), labels[0], labels[1], torch.tensor(0.7).cuda())


def paper_weights(architecture: Architecture) -> dict[str, Tensor]:
    network = paper_method().network
    flat = network.initial_weights(named_generator(0, "weights"))
    views = network.layout.views(flat, network.shapes(architecture))
    layouts = {4: torch.channels_last}
    return {
        name: view.cuda().clone(memory_format=layouts.get(view.dim(), torch.contiguous_format))
        for name, view in views.items()
    }


def plain_pass(architecture: Architecture, batch: Batch) -> tuple[float, dict[str, Tensor]]:
    leaves = {name: values.requires_grad_() for name, values in paper_weights(architecture).items()}
    (logits,) = paper_method().network.forward(leaves, batch.inputs, architecture, by_batch)
    loss = mixed_cross_entropy(logits, batch)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return float(loss.detach()), dict(zip(leaves, gradients, strict=True))


def fused_pass(
    architecture: Architecture, batch: Batch, rows: int | None = None, rounded: bool = False
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and its gradients; with rows, of the first examples in a pass made for the whole batch."""
    from fedfeast.engines.graphs.fused_layers import FusedLayers, is_fused
    from fedfeast.engines.graphs.gradient_plan import plan_gradients
    from fedfeast.engines.graphs.kernels.compiling import compile_ahead

    network = paper_method().network
    if rounded:  # all at once: one after another its kernels would take a minute
        context = GraphContext(
            paper_method(), LocalSgd(0.0, 1.0), Precision(), batch.inputs.device, tuple(batch.inputs.shape), True,
            in_cuda=True, short_batches=rows is not None,
        )  # fmt: skip
        context.architectures = [architecture]
        compile_ahead(context)
    plan = plan_gradients(network, architecture, tuple(batch.inputs.shape), in_cuda=rounded)
    buffer = torch.full((plan.size,), torch.nan, device="cuda")
    counters = torch.zeros(2, COUNTERS, dtype=torch.int32, device="cuda")
    num_images = None if rows is None else torch.tensor([rows], dtype=torch.int32, device="cuda")
    layers = FusedLayers(plan, buffer, counters, num_images)
    low = torch.bfloat16 if rounded else torch.float32
    held = {
        name: one.to(low) if len(one.shape) == 4 else one.requires_grad_(not is_fused(name))
        for name, one in paper_weights(architecture).items()
    }
    (logits,) = network.forward(held, batch.inputs.to(low), architecture, layers)
    loss = mixed_cross_entropy(logits[:rows].float(), batch if rows is None else batch.leading(rows))
    leaves = {name: one for name, one in held.items() if not is_fused(name)}
    *by_leaves, by_trunk = torch.autograd.grad(loss, [*leaves.values(), layers.output])
    layers.backward(by_trunk)
    gradients = dict(zip(leaves, by_leaves, strict=True))
    for name, place in plan.places.items():
        if name not in leaves:
            whole, shape = place.of(buffer).view(place.parts, place.size).sum(0), held[name].shape
            if len(shape) == 4:
                whole = whole.view(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2)
            gradients[name] = whole
    return float(loss.detach()), gradients


@pytest.mark.usefixtures("_products_of_whole_floats")
@pytest.mark.parametrize("position", [0, -1], ids=["smallest", "largest"])
def test_a_pass_of_the_papers_network_equals_plain_autograd(position: int) -> None:
    architecture, batch = list(paper_method().cache)[position].architecture, random_batch()
    expected_loss, expected = plain_pass(architecture, batch)
    loss, gradients = fused_pass(architecture, batch)
    assert gradients.keys() == expected.keys()
    got, wanted = (torch.cat([each[name].flatten() for name in expected]).double() for each in (gradients, expected))
    loss_error = abs(loss - expected_loss) / expected_loss
    gradient_error = float((got - wanted).norm() / wanted.norm())
    print(f"loss differs by {loss_error:.2e}, gradient by {gradient_error:.2e}")
    assert loss_error < LOSS_TOLERANCE
    assert gradient_error < GRADIENT_TOLERANCE


@pytest.mark.usefixtures("_products_of_whole_floats")
@pytest.mark.parametrize("rows", [5, 37])
@pytest.mark.parametrize("position", [0, -1], ids=["smallest", "largest"])
def test_a_pass_of_which_few_images_count_equals_plain_autograd(position: int, rows: int) -> None:
    architecture, batch = list(paper_method().cache)[position].architecture, random_batch()
    expected_loss, expected = plain_pass(architecture, batch.leading(rows))
    batch.inputs[rows:] = torch.nan
    loss, gradients = fused_pass(architecture, batch, rows)
    got, wanted = (torch.cat([each[name].flatten() for name in expected]).double() for each in (gradients, expected))
    gradient_error = float((got - wanted).norm() / wanted.norm())
    print(f"loss differs by {abs(loss - expected_loss) / expected_loss:.2e}, gradient by {gradient_error:.2e}")
    assert loss == pytest.approx(expected_loss, rel=LOSS_TOLERANCE)
    # The fewer images there are, the more their statistics amplify what rounding leaves.
    assert gradient_error < 3 * GRADIENT_TOLERANCE


@pytest.mark.skipif(not has_compiler(), reason="NVRTC is not installed")
@pytest.mark.parametrize("rows", [5, 37, 64])
@pytest.mark.parametrize("position", [0, -1], ids=["smallest", "largest"])
def test_kernels_in_cuda_serve_fewer_images_than_a_batch(position: int, rows: int) -> None:
    architecture, batch = list(paper_method().cache)[position].architecture, random_batch()
    _, whole = plain_pass(architecture, batch.leading(rows))
    alone_loss, alone = fused_pass(architecture, contiguous(batch.leading(rows)), rounded=True)
    batch.inputs[rows:] = torch.nan
    (loss, gradients), (again, others) = (fused_pass(architecture, batch, rows, rounded=True) for _ in range(2))
    assert loss == again
    assert all(torch.equal(gradient, others[name]) for name, gradient in gradients.items())
    if rows == len(batch.inputs):  # the same launches, whether the number comes along or is looked up
        assert loss == alone_loss
        assert all(torch.equal(gradient, alone[name]) for name, gradient in gradients.items())
    # Other tiles round elsewhere, and so deep a network makes much of it: neither may be farther from what is whole.
    error, usual = (
        float(sum((each[name] - whole[name]).double().square().sum() for name in whole)) for each in (gradients, alone)
    )
    print(f"loss differs by {abs(loss - alone_loss) / alone_loss:.2e}, gradient {error / usual:.2f} times as far")
    assert loss == pytest.approx(alone_loss, rel=0.005)
    assert error < 1.5 * usual


def contiguous(batch: Batch) -> Batch:
    return replace(batch, inputs=batch.inputs.contiguous(memory_format=torch.channels_last))


def test_short_batches_are_served_by_what_is_captured_for_full_ones() -> None:
    graphs, taken = [], []
    for last_batch in ("topped-up", "short"):
        one = federation(method__rule="min-max", training__last_batch=last_batch)  # no networks drawn at random
        engine = graph_engine(one)
        assert engine.context.counts_images == (last_batch == "short")
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        one_round(one, engine)
        torch.cuda.synchronize()
        graphs.append(engine.context.num_graphs)
        taken.append(torch.cuda.memory_reserved() - before)
        engine._free_slots()
    print(f"graphs {graphs}, bytes {taken}")
    assert graphs[1] <= graphs[0]
    # Losses of few examples are not captured, so that torch sets apart a little for each lane's stream.
    assert taken[1] < taken[0] + 10 * 64 * MIB


def one_round(built: Federation, engine: GraphEngine, count: int = 5) -> RoundResult:
    return engine.run_round(RoundOrder(built.initial_weights(), cohort(built, count), 0, RATE))


def graph_engine(built: Federation) -> GraphEngine:
    engine = built.engine()
    assert isinstance(engine, GraphEngine)
    return engine


@pytest.mark.parametrize("method", METHODS)
def test_a_round_in_bfloat16_gives_the_same_bits_every_time(method: str) -> None:
    pytest.importorskip("triton")
    built = federation(method__name=method)
    first, other = graph_engine(built), graph_engine(built)
    assert first.context.fused
    assert first.context.precision == Precision(torch.float32, torch.bfloat16)
    results = [one_round(built, first), one_round(built, first), one_round(built, other)]
    assert bool(torch.isfinite(results[0].flat).all())
    assert not torch.equal(results[0].flat, built.initial_weights())
    for result in results[1:]:
        assert torch.equal(result.flat, results[0].flat)
        assert result.losses == results[0].losses


def test_clients_that_find_no_room_wait_their_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation()
    with caplog.at_level(logging.WARNING, "fedfeast"):
        expected = one_round(built, graph_engine(built))
        assert caplog.records == []
        monkeypatch.setattr("fedfeast.engines.graphs.engine.arrangement_that_fits", lambda *_: Arrangement(1, 3))
        got = one_round(built, graph_engine(built))
    assert [record.getMessage() for record in caplog.records] == [
        "the device's memory has room for 1 of 5 clients at once: the others wait their turn"
    ]
    assert torch.equal(got.flat, expected.flat)
    assert got.losses == pytest.approx(expected.losses, rel=1e-12)


class StopAfterTwo(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt


def test_a_resumed_run_has_the_bits_of_an_unbroken_one(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fedfeast.train("digits", tmp_path / "run", SHORT, StopAfterTwo())
    runs = [fedfeast.train("digits", tmp_path / name, SHORT) for name in ("run", "unbroken")]
    resumed, unbroken = (run.folder.checkpoints.load_latest()[0] for run in runs)
    assert resumed is not None
    assert unbroken is not None
    assert torch.equal(resumed.flat, unbroken.flat)


def test_captured_work_is_replayed_from_and_to_the_same_memory() -> None:
    device = torch.device("cuda")
    stream, values, total = new_stream(device, priority=-1), torch.ones(8, device=device), torch.zeros(8, device=device)
    torch.cuda.synchronize()

    def work() -> None:
        total.add_(values * 2)

    with stream.entered():
        work()
    replay = stream.capture(work, new_pool(device))
    other = new_stream(device)
    for number in (3, 5):
        with other.entered():
            values.fill_(number)
        stream.wait_for(other.mark())
        with stream.entered():
            replay()
        other.wait_for(stream.mark())
    stream.finish()
    assert total.tolist() == [2.0 + 6.0 + 10.0] * 8
