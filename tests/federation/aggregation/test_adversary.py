import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Adversary, choose_adversaries
from fedfeast.randomness import named_generator


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
