"""What is done with updates before they are merged, and who lies."""

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Adversary, Aggregation, Assignment, Client, Privacy, UpdatePolicy, choose_adversaries
from fedfeast.networks import Layout
from fedfeast.randomness import named_generator
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


def test_an_attack_inverts_and_enlarges_the_change() -> None:
    sent, returned = torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0])
    assert Adversary(frozenset({0})).attack(sent, returned).tolist() == [-4.0, 12.0]
    assert Adversary(frozenset({0}), 1.0).attack(sent, returned).tolist() == [0.5, 3.0]


def test_a_share_of_those_who_take_part_is_drawn_by_name() -> None:
    participants = list(range(3, 43))
    drawn = choose_adversaries(participants, 0.2, named_generator(0, "adversary"))
    assert len(drawn) == 8
    assert drawn <= set(participants)
    assert drawn == choose_adversaries(participants, 0.2, named_generator(0, "adversary"))
    assert drawn != choose_adversaries(participants, 0.2, named_generator(1, "adversary"))


def test_a_share_of_nobody_is_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"adversary.share = 0.01 of 3 clients"):
        choose_adversaries([1, 2, 3], 0.01, named_generator(0))
