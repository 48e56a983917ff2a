import torch

from fedfeast.federation import PLAIN, Aggregation, Assignment, Client, Hostility, Privacy, Treatment
from fedfeast.networks import Layout
from fedfeast.routing import SliceMap

LAYOUT = Layout.of({"w": (3,)})
SENT, TRAINED = torch.zeros(3), torch.ones(3)


def assignment(index: int) -> Assignment:
    return Assignment(Client(index, str(index), 1e6, 5), SliceMap.leading(LAYOUT, {"w": (3,)}), ("only",), 1.0)


def test_only_the_default_is_plain() -> None:
    assert PLAIN.is_plain
    assert not Treatment(Aggregation("median")).is_plain
    assert not Treatment(Aggregation(refuse_multiple=5.0)).is_plain
    assert not Treatment(privacy=Privacy(1.0, 1.0)).is_plain
    assert not Treatment(hostility=Hostility(frozenset({1}))).is_plain
    assert PLAIN.reply(assignment(0), 0, SENT, TRAINED) is TRAINED


def test_hostile_clients_lie_and_the_others_add_noise_by_name() -> None:
    treatment = Treatment(privacy=Privacy(1.0, 1.0), hostility=Hostility(frozenset({1})), seed=3)
    assert treatment.reply(assignment(1), 0, SENT, TRAINED).tolist() == [-10.0] * 3
    noisy = treatment.reply(assignment(0), 0, SENT, TRAINED)
    assert torch.equal(noisy, treatment.reply(assignment(0), 0, SENT, TRAINED))
    assert not torch.equal(noisy, treatment.reply(assignment(0), 1, SENT, TRAINED))
    assert not torch.equal(noisy, treatment.reply(assignment(2), 0, SENT, TRAINED))
