import torch

from fedfeast.federation import Adversary, Aggregation, Assignment, Client, Privacy, UpdatePolicy
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices

LAYOUT = Layout.of({"w": (3,)})
SENT, TRAINED = torch.zeros(3), torch.ones(3)


def assignment(index: int) -> Assignment:
    return Assignment(Client(index, str(index), 1e6, 5), LeadingSlices.of(LAYOUT, {"w": (3,)}), ("only",), 1.0)


def test_only_the_default_is_plain() -> None:
    assert UpdatePolicy().is_plain
    assert not UpdatePolicy(Aggregation("median")).is_plain
    assert not UpdatePolicy(Aggregation(refuse_multiple=5.0)).is_plain
    assert not UpdatePolicy(privacy=Privacy(1.0, 1.0)).is_plain
    assert not UpdatePolicy(adversary=Adversary(frozenset({1}))).is_plain
    assert UpdatePolicy().reply(assignment(0), 0, SENT, TRAINED) is TRAINED


def test_hostile_clients_lie_and_the_others_add_noise_by_name() -> None:
    policy = UpdatePolicy(privacy=Privacy(1.0, 1.0), adversary=Adversary(frozenset({1})), seed=3)
    assert policy.reply(assignment(1), 0, SENT, TRAINED).tolist() == [-10.0] * 3
    noisy = policy.reply(assignment(0), 0, SENT, TRAINED)
    assert torch.equal(noisy, policy.reply(assignment(0), 0, SENT, TRAINED))
    assert not torch.equal(noisy, policy.reply(assignment(0), 1, SENT, TRAINED))
    assert not torch.equal(noisy, policy.reply(assignment(2), 0, SENT, TRAINED))
