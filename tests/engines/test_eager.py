import numpy as np
import pytest
import torch
from tiny import CACHE, NETWORK
from torch import nn

from fedfeast.data import Batch
from fedfeast.engines.eager import ClientSlot, sgd_step_, train_client
from fedfeast.federation import Assignment, Client, LocalSgd, Pass
from fedfeast.methods import Feast
from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator


def batches(count: int) -> list[Batch]:
    generator = named_generator(0, "batches")
    return [
        Batch(
            torch.from_numpy(generator.normal(size=(6, 1, 8, 8))),
            torch.from_numpy(generator.integers(0, 4, 6)),
            torch.from_numpy(generator.integers(0, 4, 6)),
            torch.tensor(generator.uniform(), dtype=torch.float64),
        )
        for _ in range(count)
    ]


def plainly_trained(method: Feast, flat: torch.Tensor, sgd: LocalSgd, rate: float, count: int = 3) -> torch.Tensor:
    """The same round with full-size parameters, indexing, torch.optim and no slot: slow and obvious."""
    assignment = method.assign(Client(0, "client", 1e12, 10))
    parameters = {name: nn.Parameter(view.clone()) for name, view in NETWORK.layout.views(flat).items()}
    optimiser = torch.optim.SGD(parameters.values(), lr=rate, weight_decay=sgd.weight_decay, momentum=sgd.momentum)
    generator = named_generator(0, "passes")
    for step, batch in enumerate(batches(count)):
        optimiser.zero_grad()
        if sgd.unreached == "decay":  # with gradients of zero, and not without any
            for parameter in parameters.values():
                parameter.grad = torch.zeros_like(parameter)
        total, carried = torch.zeros((), dtype=torch.float64), None
        for one_pass in method.passes(assignment, step, generator):
            shapes = NETWORK.shapes(one_pass.architecture)  # type: ignore[arg-type]
            weights = {name: parameters[name][tuple(map(slice, shape))] for name, shape in shapes.items()}
            outputs = NETWORK.forward(weights, batch.inputs, one_pass.architecture, by_batch)  # type: ignore[arg-type]
            loss, carried = method.loss(one_pass.role, outputs, batch, carried, {})
            total = total + loss
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters.values(), sgd.clip_norm)
        optimiser.step()
    trained = torch.zeros_like(flat)
    for name, view in NETWORK.layout.views(trained).items():
        view.copy_(parameters[name].detach())
    return trained


@pytest.mark.parametrize("rule", ["full", "global-min", "local-max", "min-max", "min-max-distilled"])
@pytest.mark.parametrize("clip_norm", [10.0, 0.1])
def test_a_clients_round_equals_plain_torch(rule: TrainingRule, clip_norm: float) -> None:
    method, sgd = Feast(NETWORK, CACHE, rule), LocalSgd(5e-2, clip_norm)
    flat = NETWORK.initial_weights(named_generator(0, "weights")).double()
    assignment = method.assign(Client(0, "client", 1e12, 10))
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    slot.load(assignment, assignment.slice_map.gather(flat))
    losses = train_client(method, assignment, slot, batches(3), sgd, 0.1, named_generator(0, "passes"))
    expected = assignment.slice_map.gather(plainly_trained(method, flat, sgd, 0.1))
    torch.testing.assert_close(slot.weights, expected, rtol=1e-9, atol=1e-12)
    assert sum(map(len, losses.values())) == 3 * len(method.passes(assignment, 0, named_generator(0)))


class ByTurns(Feast):
    """The smallest and the largest network by turns, so that some blocks are reached at every other step."""

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        return [Pass(assignment.architectures[-(step % 2)], "supervised")]


SGDS = [
    LocalSgd(5e-2, 1.0, momentum=0.9),
    LocalSgd(5e-2, float("inf"), momentum=0.5),
    LocalSgd(5e-2, 1.0, unreached="keep"),
    LocalSgd(5e-2, 1.0, momentum=0.9, unreached="keep"),
]


@pytest.mark.parametrize("sgd", SGDS, ids=str)
def test_steps_are_those_of_torchs_sgd(sgd: LocalSgd) -> None:
    method = ByTurns(NETWORK, CACHE)
    flat = NETWORK.initial_weights(named_generator(0, "weights")).double()
    assignment = method.assign(Client(0, "client", 1e12, 10))
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    for _ in range(2):  # and again, from a velocity of zero
        slot.load(assignment, assignment.slice_map.gather(flat))
        train_client(method, assignment, slot, batches(4), sgd, 0.1, named_generator(0, "passes"))
    expected = assignment.slice_map.gather(plainly_trained(method, flat, sgd, 0.1, 4))
    torch.testing.assert_close(slot.weights, expected, rtol=1e-9, atol=1e-12)


def test_one_step_on_hand_made_numbers() -> None:
    weights, gradient = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])
    sgd_step_(weights, gradient, LocalSgd(weight_decay=0.1, clip_norm=10.0), 0.5)
    torch.testing.assert_close(weights, torch.tensor([1.0 - 0.5 * (3.0 + 0.1), -2.0 - 0.5 * (4.0 - 0.2)]))
    weights, gradient = torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])
    sgd_step_(weights, gradient, LocalSgd(weight_decay=0.1, clip_norm=2.5), 1.0)
    torch.testing.assert_close(weights, torch.tensor([-1.5, -2.0]))


def test_decay_acts_on_every_routed_position() -> None:
    method, sgd = Feast(NETWORK, CACHE, "global-min"), LocalSgd(weight_decay=0.1)
    flat = NETWORK.initial_weights(named_generator(0, "weights")).double()
    assignment = method.assign(Client(0, "client", 1e12, 10))
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    sent = assignment.slice_map.gather(flat)
    slot.load(assignment, sent)
    train_client(method, assignment, slot, batches(1), sgd, 0.5, named_generator(0))
    inactive = slot.gradient == 0
    assert 0 < int(inactive.sum()) < len(sent)
    torch.testing.assert_close(slot.weights[inactive], sent[inactive] * (1 - 0.5 * 0.1))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_no_pass_reaches_can_be_kept(momentum: float) -> None:
    method = Feast(NETWORK, CACHE, "global-min")
    sgd = LocalSgd(weight_decay=0.1, momentum=momentum, unreached="keep")
    flat = NETWORK.initial_weights(named_generator(0, "weights")).double()
    assignment = method.assign(Client(0, "client", 1e12, 10))
    slot = ClientSlot(method, torch.float64, torch.device("cpu"))
    sent = assignment.slice_map.gather(flat)
    slot.load(assignment, sent)
    train_client(method, assignment, slot, batches(2), sgd, 0.5, named_generator(0))
    layout, reached = assignment.slice_map.layout, NETWORK.shapes(CACHE[0].architecture)
    before, after = layout.views(sent), layout.views(slot.weights)
    assert 0 < len(reached) < len(before)
    for name in before:
        changed = after[name] != before[name]
        # Of a tensor that is reached, slices without a gradient decay too; a shift of zero has nothing to lose.
        assert bool(changed[before[name] != 0].all()) if name in reached else not bool(changed.any()), name


def test_a_slot_is_reused_by_clients_of_other_sizes() -> None:
    method, sgd = Feast(NETWORK, CACHE), LocalSgd()
    flat = NETWORK.initial_weights(named_generator(0, "weights")).double()
    fresh, reused = (ClientSlot(method, torch.float64, torch.device("cpu")) for _ in range(2))
    for budget in (1e12, float(CACHE[1].macs), 1e12):
        assignment = method.assign(Client(0, "client", budget, 10))
        reused.load(assignment, assignment.slice_map.gather(flat))
        train_client(method, assignment, reused, batches(2), sgd, 0.1, named_generator(0))
    fresh.load(assignment, assignment.slice_map.gather(flat))
    train_client(method, assignment, fresh, batches(2), sgd, 0.1, named_generator(0))
    assert torch.equal(fresh.weights, reused.weights)
