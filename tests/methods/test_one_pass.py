import torch

from fedfeast.data import Batch
from fedfeast.federation import Assignment, Client, Pass, mixed_cross_entropy
from fedfeast.methods import find_method
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.networks import Level
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.routing import LeadingSlices

NARROW, WIDE = Level((2, 4), (2,)), Level((4, 8), (2,))


def test_a_step_is_one_pass_of_the_last_network_and_the_loss_that_of_the_last_exit() -> None:
    method, _ = build_method(load_recipe("digits", {"method.name": "heterofl"}))
    assert isinstance(method, OnePassMethod)
    slices = LeadingSlices.of(method.network.layout, {})
    assignment = Assignment(Client(0, "a", 1e6, 3), slices, (NARROW, WIDE), 1.0)
    assert method.passes(assignment, 0, named_generator(0, "passes")) == [Pass(WIDE, "supervised")]
    assert method.expected_passes(assignment) == {WIDE: 1.0}
    labels = torch.tensor([1, 0])
    batch = Batch(torch.zeros(2, 1, 8, 8), labels, labels, torch.tensor(1.0))
    first, last = torch.randn(2, 3), torch.randn(2, 3)
    loss, carried = method.loss("supervised", (first, last), batch, None, {})
    assert torch.equal(loss, mixed_cross_entropy(last, batch))
    assert carried is None


def test_who_shares_it() -> None:
    shared = {"fedavg", "heterofl", "fiarse", "superfednas", "deepfednas"}
    assert {name for name in (*shared, "feast") if issubclass(find_method(name), OnePassMethod)} == shared
