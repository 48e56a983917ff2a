import math

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.data.class_prior import ClassPrior
from fedfeast.federation import CLASS_PRIOR, pass_loss
from fedfeast.methods import Feast
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method, build_preparation


def test_the_prior_is_the_log_of_frequencies_with_one_more_of_every_class() -> None:
    prior = ClassPrior(2.0, 3).of(torch.tensor([0, 0, 0, 1]), torch.float64)
    expected = [2 * math.log(count / 7) for count in (4, 2, 1)]
    assert prior.tolist() == pytest.approx(expected)
    assert ClassPrior(1.0, 3).of(torch.tensor([0]), torch.float32).dtype == torch.float32


def test_teacher_and_students_are_measured_after_it() -> None:
    method, _ = build_method(load_recipe("digits"))
    assert isinstance(method, Feast)
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([0]), torch.tensor(1.0))
    logits, prior = torch.tensor([[1.0, 0.0]]), torch.tensor([0.0, 2.0])
    for role, carried in (("teacher", None), ("student", torch.tensor([[0.5, 0.5]]))):
        loss, told = pass_loss(method, role, (logits,), batch, carried, {CLASS_PRIOR: prior})
        by_hand, told_by_hand = method.loss(role, (logits + prior,), batch, carried, {})
        assert torch.equal(loss, by_hand)
        assert told is not None
        assert told_by_hand is not None
        assert torch.equal(told, told_by_hand)
        assert not torch.equal(loss, pass_loss(method, role, (logits,), batch, carried, {})[0])


def test_a_recipe_has_none_unless_it_asks() -> None:
    for strength, expected in ((0.0, None), (0.5, ClassPrior(0.5, 10))):
        recipe = load_recipe("digits", {"training.class_prior": strength})
        assert build_preparation(recipe, None, build_method(recipe)[0]).class_prior == expected
