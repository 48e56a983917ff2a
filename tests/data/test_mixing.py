"""Mixup and CutMix by turns."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfeast.data.mixing import Mixing, MixPlan, apply_mixing, draw_mixing, mixed_labels
from fedfeast.errors import InvalidInput


def plan_of_one(is_cutmix: bool, lam: float, partners: list[int], box: list[int]) -> MixPlan:
    return MixPlan(np.array([is_cutmix]), np.array([lam]), np.array([partners]), np.array([box]))


@given(seed=st.integers(0, 10_000), height=st.integers(1, 40), width=st.integers(1, 40))
def test_cutmix_lambda_is_the_exact_share_of_pixels_kept(seed: int, height: int, width: int) -> None:
    plan = draw_mixing(Mixing(), 5, 2, (height, width), np.random.default_rng(seed), first_turn=1)
    plan = plan.select(slice(0, 5, 2))  # the CutMix turns
    assert plan.is_cutmix.all()
    swapped = MixPlan(plan.is_cutmix, plan.lambdas, np.tile([1, 0], (3, 1)), plan.boxes)
    images = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1, 1).expand(3, 2, 1, height, width)
    kept = apply_mixing(images, swapped)[:, 0].double().mean(dim=(1, 2, 3)).numpy()
    assert np.allclose(kept, plan.lambdas, rtol=0, atol=1e-6)
    assert ((plan.lambdas >= 0) & (plan.lambdas <= 1)).all()


def test_mixup_is_the_weighted_sum() -> None:
    images = torch.tensor([1.0, 2.0, 4.0]).view(1, 3, 1, 1, 1).expand(1, 3, 1, 2, 2)
    mixed = apply_mixing(images, plan_of_one(False, 0.75, [1, 2, 0], [0, 0, 0, 0]))
    assert mixed.shape == images.shape
    assert mixed[0, :, 0, 0, 0].tolist() == [1.25, 2.5, 3.25]
    assert torch.equal(mixed, mixed[..., :1, :1].expand_as(mixed))


def test_cutmix_pastes_the_box_of_the_partner() -> None:
    images = torch.arange(2 * 2 * 2 * 3, dtype=torch.float32).view(1, 2, 2, 2, 3)
    mixed = apply_mixing(images, plan_of_one(True, 4 / 6, [1, 0], [0, 1, 1, 3]))
    expected = images.clone()
    expected[:, :, :, 0:1, 1:3] = images.flip(1)[:, :, :, 0:1, 1:3]
    assert torch.equal(mixed, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_steps_together_equal_steps_alone(dtype: torch.dtype) -> None:
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 4, 3, 8, 10))).to(dtype)
    plan = draw_mixing(Mixing(), 6, 4, (8, 10), np.random.default_rng(1))
    together = apply_mixing(images, plan)
    parts = [slice(step, step + 1) for step in range(6)]
    assert together.dtype == dtype
    assert torch.equal(together, torch.cat([apply_mixing(images[part], plan.select(part)) for part in parts]))


def test_plans_one_after_another_are_one_plan() -> None:
    plan = draw_mixing(Mixing(), 7, 4, (8, 10), np.random.default_rng(2))
    rejoined = MixPlan.concatenate([plan.select(slice(0, 2)), plan.select(slice(2, 3)), plan.select(slice(3, 7))])
    for name in ("is_cutmix", "lambdas", "partners", "boxes"):
        assert np.array_equal(getattr(rejoined, name), getattr(plan, name))


def test_turns_alternate_from_the_first_turn() -> None:
    def kinds(steps: int, first_turn: int) -> list[bool]:
        plan = draw_mixing(Mixing(), steps, 2, (8, 8), np.random.default_rng(0), first_turn)
        return [bool(kind) for kind in plan.is_cutmix]

    assert kinds(4, 0) == [False, True, False, True]
    assert kinds(3, 5) == [True, False, True]
    assert [kinds(1, round_index)[0] for round_index in range(4)] == [False, True, False, True]


def test_mixup_steps_have_empty_boxes_and_partners_are_permutations() -> None:
    plan = draw_mixing(Mixing(), 30, 16, (32, 32), np.random.default_rng(2))
    assert not plan.boxes[~plan.is_cutmix].any()
    assert plan.boxes[plan.is_cutmix].any(axis=1).all()
    assert (np.sort(plan.partners, axis=1) == np.arange(16)).all()
    assert len(np.unique(plan.partners, axis=0)) > 1


def test_boxes_lie_inside_the_image() -> None:
    plan = draw_mixing(Mixing(), 2_000, 2, (12, 20), np.random.default_rng(3))
    top, left, bottom, right = plan.boxes.T
    assert ((top >= 0) & (top <= bottom) & (bottom <= 12)).all()
    assert ((left >= 0) & (left <= right) & (right <= 20)).all()


def test_beta_sets_how_strongly_images_mix() -> None:
    plan = draw_mixing(Mixing(0.01, 1_000.0), 2_000, 2, (32, 32), np.random.default_rng(4))
    mixup, cutmix = plan.lambdas[~plan.is_cutmix], plan.lambdas[plan.is_cutmix]
    assert np.mean(np.minimum(mixup, 1 - mixup) < 0.01) > 0.9  # nearly always one image alone
    assert cutmix.min() > 0.48  # at most half the area, less where the box is clipped


def test_no_mixing_is_the_identity() -> None:
    plan = draw_mixing(None, 3, 4, (8, 8), np.random.default_rng(5))
    images = torch.from_numpy(np.random.default_rng(6).normal(size=(3, 4, 1, 8, 8)))
    labels = torch.arange(12).view(3, 4)
    assert (plan.lambdas == 1).all()
    assert torch.equal(apply_mixing(images, plan), images)
    assert all(torch.equal(either, labels) for either in mixed_labels(labels, plan))


def test_labels_follow_the_partners() -> None:
    plan = MixPlan(np.zeros(2, bool), np.ones(2), np.array([[2, 0, 1], [0, 2, 1]]), np.zeros((2, 4), np.int64))
    labels = torch.tensor([[7, 8, 9], [4, 5, 6]])
    labels_a, labels_b = mixed_labels(labels, plan)
    assert torch.equal(labels_a, labels)
    assert labels_b.tolist() == [[9, 7, 8], [4, 6, 5]]


@pytest.mark.parametrize("mixing", [Mixing(mixup_beta=0), Mixing(cutmix_beta=-1), Mixing(float("nan"), 1)])
def test_beta_must_be_positive(mixing: Mixing) -> None:
    with pytest.raises(InvalidInput, match="beta is"):
        draw_mixing(mixing, 2, 2, (8, 8), np.random.default_rng(0))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_gpu_gives_the_same_mix_without_waiting_for_it() -> None:
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 16, 3, 32, 32))).float()
    labels = torch.arange(96).view(6, 16)
    plan = draw_mixing(Mixing(), 6, 16, (32, 32), np.random.default_rng(1))
    images_on_gpu, labels_on_gpu = images.cuda(), labels.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        mixed = apply_mixing(images_on_gpu, plan)
        partner_labels = mixed_labels(labels_on_gpu, plan)[1]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(mixed.cpu(), apply_mixing(images, plan))
    assert torch.equal(partner_labels.cpu(), mixed_labels(labels, plan)[1])


def test_a_fair_coin_is_thrown_for_each_batch_and_decides_the_beta() -> None:
    mixing = Mixing(0.01, 1_000.0, "coin")
    plan = draw_mixing(mixing, 4_000, 2, (32, 32), np.random.default_rng(7), first_turn=1)
    assert abs(plan.is_cutmix.mean() - 0.5) < 0.03
    assert abs(np.mean(plan.is_cutmix[1:] == plan.is_cutmix[:-1]) - 0.5) < 0.03  # no turns
    mixup, cutmix = plan.lambdas[~plan.is_cutmix], plan.lambdas[plan.is_cutmix]
    assert np.mean(np.minimum(mixup, 1 - mixup) < 0.01) > 0.9
    assert cutmix.min() > 0.48
    again = draw_mixing(mixing, 4_000, 2, (32, 32), np.random.default_rng(7), first_turn=2)
    np.testing.assert_array_equal(again.is_cutmix, plan.is_cutmix)  # whatever the round
