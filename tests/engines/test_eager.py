import pytest
import torch
from tiny import CACHE, NETWORK
from torch import nn

from fedfeast.data import Batch
from fedfeast.engines.eager import ClientSlot, sgd_step_, train_client
from fedfeast.federation import Client, LocalSgd
from fedfeast.methods import Feast
from fedfeast.methods.feast import TrainingRule
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


def plainly_trained(method: Feast, flat: torch.Tensor, sgd: LocalSgd, rate: float) -> torch.Tensor:
    """The same round with full-size parameters, indexing, torch.optim and no slot: slow and obvious."""
    assignment = method.assign(Client(0, "client", 1e12, 10))
    parameter = nn.Parameter(flat.clone())
    optimiser = torch.optim.SGD([parameter], lr=rate, weight_decay=sgd.weight_decay)
    generator = named_generator(0, "passes")
    for step, batch in enumerate(batches(3)):
        optimiser.zero_grad()
        total, carried = torch.zeros((), dtype=torch.float64), None
        for one_pass in method.passes(assignment, step, generator):
            shapes = NETWORK.shapes(one_pass.architecture)  # type: ignore[arg-type]
            weights = NETWORK.layout.views(parameter, shapes)
            outputs = NETWORK.forward(weights, batch.inputs, one_pass.architecture, by_batch)  # type: ignore[arg-type]
            loss, carried = method.loss(one_pass.role, outputs, batch, carried, {})
            total = total + loss
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_([parameter], sgd.clip_norm)
        optimiser.step()
    return parameter.detach()


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
