"""Networks of one's own on the graph engine: equal to the eager one, and run by it where they cannot be captured."""

import logging
from collections.abc import Callable

import pytest
import torch
from sequence_networks import SmallFederation, flattening, signal_federation, token_federation
from torch import Tensor, nn

from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.federation import RoundOrder, RoundResult
from fedfeast.networks.built import elastic

RATE = 0.2
WHOLE = Precision(torch.float64, torch.float64)
METHODS = ("feast", "nested", "fedavg")


def rounds(engine: EagerEngine | GraphEngine, built: SmallFederation, count: int = 2) -> list[RoundResult]:
    """Return successive rounds' results, each from where the last one led."""
    results: list[RoundResult] = []
    for index in range(count):
        flat = results[-1].flat if results else built.initial_weights(torch.float64)
        results.append(engine.run_round(RoundOrder(flat, built.planned(), index, RATE)))
    return results


def equals_eager(built: SmallFederation, tolerance: float = 1e-10) -> GraphEngine:
    graphs = GraphEngine(*built.parts, WHOLE, built.device)
    start = built.initial_weights(torch.float64)
    both = rounds(EagerEngine(*built.parts, torch.float64), built), rounds(graphs, built)
    for expected, got in zip(*both, strict=True):
        assert float((expected.flat - start).norm()) > 1e-3
        assert float((got.flat - expected.flat).norm() / (expected.flat - start).norm()) < tolerance
        assert got.num_steps == expected.num_steps >= 6
        assert got.losses == pytest.approx(expected.losses, rel=1e-10)
        start = expected.flat
    return graphs


@pytest.mark.parametrize("method", METHODS)
def test_tokens_dropout_tied_frozen_and_buffered_tensors(method: str) -> None:
    built = token_federation(method)
    assert built.preparation.draws
    graphs = equals_eager(built)
    assert graphs.context.num_graphs > 0


@pytest.mark.parametrize("method", METHODS)
def test_signals_and_batch_norms(method: str) -> None:
    equals_eager(signal_federation(method))


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_labels_of_other_tasks(task: str) -> None:
    equals_eager(signal_federation(task=task))


def test_images_reach_a_module_in_torchs_own_order() -> None:
    equals_eager(signal_federation(builder=flattening, shape=(2, 6, 6)))


def test_dropout_changes_what_is_learnt() -> None:
    with_it, without = (
        rounds(GraphEngine(*built.parts, WHOLE, built.device), built, 1)[0].flat
        for built in (token_federation(share=0.5), token_federation(share=0.0))
    )
    assert not torch.allclose(with_it, without)


@pytest.mark.parametrize("federation", [token_federation, signal_federation])
def test_fused_vectors_move_tensors_of_any_rank(
    federation: Callable[[str], SmallFederation], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("fedfeast.engines.graphs.kernels.vectors.NORM_PROGRAMS", 4)  # the interpreter is slow
    built = federation("fedavg")
    start = built.initial_weights(torch.float32)
    order = RoundOrder(start, built.planned()[:1], 0, RATE)
    eager = EagerEngine(*built.parts, torch.float32)
    graphs = GraphEngine(*built.parts, Precision(torch.float32, torch.float32), built.device)
    graphs.context.fused = True
    assert not graphs.context.fused_layers
    expected, got = eager.run_round(order), graphs.run_round(order)
    assert float((got.flat - expected.flat).norm() / (expected.flat - start).norm()) < 1e-4


def test_bfloat16_is_left_to_autocast_and_weights_stay_whole() -> None:
    built = token_federation()
    asked, start = Precision(torch.float32, torch.bfloat16), built.initial_weights(torch.float32)
    graphs = GraphEngine(*built.parts, asked, built.device)
    assert graphs.context.precision == Precision(torch.float32, torch.float32, torch.bfloat16)
    order = RoundOrder(start, built.planned(), 0, RATE)
    expected, got = EagerEngine(*built.parts, torch.float32).run_round(order), graphs.run_round(order)
    assert got.flat.dtype == torch.float32
    apart = float((got.flat - expected.flat).norm() / (expected.flat - start).norm())
    assert 1e-5 < apart < 0.1, "rounded, and yet the same training"


def test_a_packages_own_network_keeps_its_precision() -> None:
    network = signal_federation().method.network
    assert WHOLE.for_network(network) == WHOLE
    assert Precision().for_network(network).products == torch.bfloat16


class FailingOnce(nn.Module):
    """Fails at the second training pass of all, as work that cannot be captured does when it is tried out."""

    passes = 0

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(20, width), nn.Linear(width, classes)

    def forward(self, signals: Tensor) -> Tensor:
        FailingOnce.passes += self.training
        if FailingOnce.passes == 2:
            raise RuntimeError("called a synchronizing CUDA operation.\nSomething else")
        return torch.as_tensor(self.down(self.up(signals.flatten(1)).relu()))


@elastic(width=[4, 8])
def failing_once(width: int, *, classes: int) -> nn.Module:
    return FailingOnce(width, classes)


@pytest.mark.parametrize("asked", [WHOLE, Precision(torch.float64, torch.bfloat16)])
def test_what_cannot_be_captured_runs_eagerly_and_says_why(asked: Precision, caplog: pytest.LogCaptureFixture) -> None:
    FailingOnce.passes, built = 0, signal_federation(builder=failing_once)
    graphs = GraphEngine(*built.parts, asked, built.device)
    with caplog.at_level(logging.WARNING, "fedfeast"):
        got = rounds(graphs, built)
    assert [record.getMessage() for record in caplog.records] == [
        f"the network {built.method.network.largest} cannot be captured as a CUDA graph "  # type: ignore[attr-defined]
        f"(called a synchronizing CUDA operation, test_own_networks.py line {line_of_the_failure()}): "
        "rounds run on the eager engine, in float64"
    ]
    assert [one.notes for one in got] == [{"engine": "eager"}] * 2
    expected = rounds(EagerEngine(*built.parts, torch.float64), built)
    assert all(torch.equal(one.flat, other.flat) for one, other in zip(got, expected, strict=True))


def line_of_the_failure() -> int:
    first = FailingOnce.forward.__code__.co_firstlineno
    return first + 3


class Counting(nn.Module):
    """Changes a buffer in its forward, in place or by a new tensor."""

    seen: Tensor

    def __init__(self, width: int, classes: int, in_place: bool) -> None:
        super().__init__()
        self.up, self.down, self.in_place = nn.Linear(20, width), nn.Linear(width, classes), in_place
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, signals: Tensor) -> Tensor:
        if self.training and self.in_place:
            self.seen.add_(1)
        elif self.training:
            self.seen = self.seen + 1
        return torch.as_tensor(self.down(self.up(signals.flatten(1)).relu()))


@elastic(width=[4, 8])
def counting(width: int, *, classes: int, in_place: bool = True) -> nn.Module:
    return Counting(width, classes, in_place)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_module_that_changes_its_buffers_runs_eagerly(in_place: bool, caplog: pytest.LogCaptureFixture) -> None:
    built = signal_federation(builder=counting.with_options(in_place=in_place))
    with caplog.at_level(logging.WARNING, "fedfeast"):
        (got,) = rounds(GraphEngine(*built.parts, WHOLE, built.device), built, 1)
    assert got.notes == {"engine": "eager"}
    assert "width=8 cannot be captured as a CUDA graph (its forward changes the buffer seen): rounds" in caplog.text


def test_positions_of_any_rank_divide_what_a_client_received() -> None:
    built = token_federation()
    shared = GraphContext(built.method, built.sgd, WHOLE, built.device, (3, 6), False)
    for one in built.planned():
        active, passive = shared.positions(one)
        assert sorted(active.tolist() + passive.tolist()) == one.slice_map.index().tolist()
