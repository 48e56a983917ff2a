from functools import cache

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.plain_vectors import PlainVectors
from fedfeast.engines.graphs.programs import Exchange, LossProgram, Memory, NetworkProgram
from fedfeast.federation import LocalSgd
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

SHAPES = ((4, 10),)


@cache
def context() -> GraphContext:
    method = outline(load_recipe("digits")).method
    return GraphContext(
        method, LocalSgd(), Precision(torch.float64, torch.float64), torch.device("cpu"), (4, 1, 8, 8), False
    )


def drawn(name: str, *shape: int) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, name).normal(size=shape))


def batch() -> Batch:
    labels = torch.tensor([1, 2, 3, 4]), torch.tensor([4, 3, 2, 1])
    return Batch(drawn("images", 4, 1, 8, 8), *labels, torch.tensor(0.7, dtype=torch.float64))


def exchange() -> Exchange:
    rooms = Exchange.of(SHAPES, torch.float64, torch.device("cpu"))
    rooms.outputs[0].copy_(drawn("outputs", *SHAPES[0]))
    return rooms


@pytest.mark.parametrize("position", [0, 3, -1])
def test_a_network_leaves_outputs_and_takes_their_gradients(position: int) -> None:
    shared, network = context(), context().method.network
    architecture = shared.architectures[position]
    blueprint = shared.blueprint(architecture)
    memory = Memory.of(shared)
    memory.gradients.fill_(torch.nan)
    program, rooms = NetworkProgram(shared, blueprint, batch(), memory), exchange()
    for seed in range(2):  # the same memory again, other weights
        flat = network.initial_weights(named_generator(seed)).double()
        PlainVectors().gather(flat, blueprint, memory.low, memory.full)
        leaves = {
            name: view.clone().requires_grad_()
            for name, view in network.layout.views(flat, network.shapes(architecture)).items()
        }
        (expected,) = network.forward(leaves, batch().inputs, architecture, by_batch)
        assert program.forward(rooms) == SHAPES
        torch.testing.assert_close(rooms.outputs[0], expected.detach(), rtol=1e-12, atol=1e-12)
        rooms.gradients[0].copy_(drawn(f"gradient {seed}", *SHAPES[0]))
        program.backward(rooms)
        gradients = torch.autograd.grad(expected, list(leaves.values()), rooms.gradients[0])
        total = torch.zeros(network.layout.size, dtype=torch.float64)
        PlainVectors().add_gradients(total, memory.gradients, blueprint)
        for name, gradient in zip(leaves, gradients, strict=True):
            got = network.layout.views(total, network.shapes(architecture))[name]
            torch.testing.assert_close(got, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("role", ["supervised", "teacher", "student"])
def test_a_loss_is_the_methods(role: str) -> None:
    rooms, method = exchange(), context().method
    carried = drawn("teacher", *SHAPES[0]).softmax(1) if role == "student" else None
    program = LossProgram(context(), role, batch(), {}, rooms, carried)
    assert float(program.total) == 0, "trying it out counts for nothing"
    if carried is not None:
        assert program.carried_in is not None
        program.carried_in.copy_(carried)
    expected_total = 0.0
    for turn in range(2):
        rooms.outputs[0].copy_(drawn(f"outputs {turn}", *SHAPES[0]))
        program.replay()
        leaf = rooms.outputs[0].clone().requires_grad_()
        loss, left = method.loss(role, (leaf,), batch(), carried, {})
        (gradient,) = torch.autograd.grad(loss, leaf)
        torch.testing.assert_close(rooms.gradients[0], gradient)
        expected_total += float(loss.detach())
        assert float(program.total) == pytest.approx(expected_total, rel=1e-12)
        if left is None:
            assert program.carried_out is None
        else:
            assert program.carried_out is not None
            torch.testing.assert_close(program.carried_out, left)


def test_what_is_only_handed_on_is_not_copied() -> None:
    carried = drawn("teacher", *SHAPES[0]).softmax(1)
    program = LossProgram(context(), "student", batch(), {}, exchange(), carried)
    assert program.carried_out is program.carried_in
    assert program.carried_in is not carried


@pytest.mark.parametrize("precision", [Precision(), Precision(torch.float64, torch.float64)])
def test_the_bytes_of_a_lanes_memory_are_known_before_it_is_made(precision: Precision) -> None:
    shared = GraphContext(context().method, LocalSgd(), precision, torch.device("cpu"), (4, 1, 8, 8), False)
    memory = Memory.of(shared)
    parts = (memory.low, memory.full, memory.gradients, memory.counters)
    assert Memory.num_bytes(shared) == sum(part.nbytes for part in parts)
    assert memory.low.dtype == precision.activations
    assert memory.full.numel() < memory.low.numel(), "convolutions are kept rounded alone"


def test_room_for_outputs_and_their_gradients() -> None:
    rooms = Exchange.of(((2, 3), (4,)), torch.float32, torch.device("cpu"))
    for each in (rooms.outputs, rooms.gradients):
        assert [tuple(one.shape) for one in each] == [(2, 3), (4,)]
        assert all(one.dtype == torch.float32 for one in each)
    assert rooms.outputs[0].data_ptr() != rooms.gradients[0].data_ptr()
