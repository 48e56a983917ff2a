from math import exp
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.methods import DepthFL
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe


def paper(**options: Any) -> DepthFL:
    settings = {f"method.{name}": value for name, value in options.items()}
    settings |= {"method.name": "depthfl", "population.below_smallest": "exclude"}
    method = outline(load_recipe("cifar100-paper", settings)).method
    assert isinstance(method, DepthFL)
    return method


@pytest.mark.parametrize(
    ("width", "macs"),
    [
        (0.4, [23_733_700, 44_980_912, 66_298_504, 87_626_296]),
        (1.0, [152_770_816, 287_001_344, 421_244_672, 555_513_600]),
    ],
)
def test_a_level_ends_after_each_stage(width: float, macs: list[int]) -> None:
    assert [point.macs for point in paper(width=width).operating_points()] == macs


def test_distillation_grows_over_the_first_rounds() -> None:
    method = paper()
    assert method.consistency(0) == pytest.approx(exp(-5))
    assert method.consistency(600) == pytest.approx(exp(-5 / 4))  # half of 0.3 of 4000
    assert method.consistency(1200) == method.consistency(3999) == 1.0
    assert paper(ramp_up=0.0).consistency(0) == 1.0
    assert paper(distillation=False).consistency(4000) == 0.0


def test_exits_learn_from_labels_and_from_each_other() -> None:
    method = paper()
    generator = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    labels = torch.tensor([0, 1, 2, 0])
    batch = Batch(torch.zeros(4, 1, 2, 2), labels, labels, torch.tensor(1.0))
    exits = [one.requires_grad_() for one in (first, second, third)]
    loss, _ = method.loss("supervised", (*exits, exits[0]), batch, None, {"consistency": torch.tensor(0.5)})
    expected = sum(F.cross_entropy(one, labels).item() for one in exits)
    for student in exits:
        for teacher in exits:
            if teacher is not student:
                divergence = (teacher.softmax(1) * (teacher.log_softmax(1) - student.log_softmax(1))).sum(1).mean()
                expected += 0.5 * divergence.item() / 2
    assert loss.item() == pytest.approx(expected)
    # Teachers are not moved by what they teach: the first exit's gradient is that of its own terms.
    (gradient,) = torch.autograd.grad(loss, [first])
    own = F.cross_entropy(first, labels)
    for teacher in (second, third):
        own = own + 0.25 * F.kl_div(first.log_softmax(1), teacher.softmax(1).detach(), reduction="batchmean")
    torch.testing.assert_close(gradient, torch.autograd.grad(own, [first])[0])


def test_the_mean_of_all_exits_is_served() -> None:
    method = outline(load_recipe("digits", {"method.name": "depthfl"})).method
    flat = method.network.initial_weights(named_generator(0))
    point = method.operating_points()[-1]
    deployed = method.deploy(flat, point)
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    *exits, served = deployed.network.forward(deployed.weights, images, point.architecture, by_batch)
    assert len(exits) == 4
    torch.testing.assert_close(served, torch.stack(exits).mean(dim=0))
    assert torch.equal(deployed(images, by_batch), served)


@pytest.mark.parametrize("options", [{"width": 0.0}, {"width": 2.0}, {"ramp_up": -0.1}, {"ramp_up": 1.1}])
def test_shares_that_are_none_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=rf"method.{next(iter(options))} = "):
        paper(**options)
