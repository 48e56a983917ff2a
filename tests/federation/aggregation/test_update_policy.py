"""What is done with updates before they are merged, and who lies."""

from dataclasses import replace

import pytest
import torch

from fedfeast.engines.eager import sgd_step_
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Adversary,
    Aggregation,
    Assignment,
    Client,
    LocalSgd,
    Privacy,
    UpdatePolicy,
    choose_adversaries,
)
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


def weights_of(options: Aggregation, *weights: float) -> list[float]:
    planned = [replace(assignment(index), weight=weight) for index, weight in enumerate(weights)]
    return [one.weight for one in UpdatePolicy(options).weighed(planned)]


def test_what_an_answer_weighs_can_be_capped_or_made_alike() -> None:
    assert weights_of(Aggregation(), 1, 5, 1000) == [1, 5, 1000]
    assert weights_of(Aggregation("clipped-mean", weight_cap=2.0), 1, 5, 1000) == [1, 5, 10]
    assert weights_of(Aggregation(weigh="alike"), 1, 5, 1000) == [1, 1, 1]
    assert weights_of(Aggregation(weight_cap=2.0)) == []
    boasting = UpdatePolicy(Aggregation(weight_cap=3.0), adversary=Adversary(frozenset({1}), claimed_multiple=100.0))
    assert [one.weight for one in boasting.weighed([assignment(0), assignment(1), assignment(2)])] == [1.0, 3.0, 1.0]
    with pytest.raises(InvalidInput, match=r"aggregation.weight_cap = 0.5: give a number of at least 1"):
        Aggregation(weight_cap=0.5)


def test_a_change_that_is_not_finite_is_never_made_private() -> None:
    with pytest.raises(InvalidInput, match="not finite"):
        UpdatePolicy(privacy=Privacy(1.0, 1.0)).reply(assignment(0), 0, SENT, TRAINED * torch.nan)


@pytest.mark.parametrize(("momentum", "most"), [(0.0, 20), (0.5, 35)])
@pytest.mark.parametrize("towards", [1.0, -1.0])
def test_no_training_leads_further_than_its_steps(momentum: float, most: float, towards: float) -> None:
    sgd, weights = LocalSgd(weight_decay=0.1, clip_norm=2.0, momentum=momentum), torch.tensor([3.0, 4.0])
    moved, velocity = weights.clone(), torch.zeros(2) if momentum else None
    for _ in range(7):
        sgd_step_(moved, towards * torch.tensor([30.0, 40.0]), sgd, 0.5, velocity)
    farthest = sgd.farthest(0.5, 7, 5.0)
    assert float((moved - weights).norm()) <= farthest <= most


def test_unclipped_training_may_lead_anywhere() -> None:
    assert LocalSgd(clip_norm=float("inf"), momentum=0.9).farthest(0.1, 3, 5.0) == float("inf")
