import numpy as np
import torch

from fedfeast.data.mixing import Mixing, apply_mixing, draw_mixing, mixed_labels
from fedfeast.randomness import named_generator

SIZE = (6, 5)


def images(steps: int, batch: int) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, "images").normal(size=(steps, batch, 2, *SIZE)))


def test_without_mixing_everything_stays() -> None:
    plan = draw_mixing(None, 3, 4, SIZE, named_generator(0))
    assert torch.equal(apply_mixing(images(3, 4), plan), images(3, 4))
    assert plan.shares.tolist() == [1.0] * 3
    labels = torch.arange(12).reshape(3, 4)
    assert all(torch.equal(part, labels) for part in mixed_labels(labels, plan))


def test_mixup_and_cutmix_by_turns() -> None:
    for first_turn in (0, 1):
        plan = draw_mixing(Mixing(), 6, 4, SIZE, named_generator(0), first_turn)
        assert plan.is_cutmix.tolist() == [bool((step + first_turn) % 2) for step in range(6)]


def test_every_pixel_comes_from_the_right_place() -> None:
    plan = draw_mixing(Mixing(), 40, 5, SIZE, named_generator(0))
    before, after = images(40, 5), apply_mixing(images(40, 5), plan)
    for step in range(40):
        partners = before[step, plan.partners[step]]
        if not plan.is_cutmix[step]:
            expected = plan.shares[step] * before[step] + (1 - plan.shares[step]) * partners
            torch.testing.assert_close(after[step], expected)
            continue
        top, bottom, left, right = plan.boxes[step]
        expected = before[step].clone()
        expected[:, :, top:bottom, left:right] = partners[:, :, top:bottom, left:right]
        assert torch.equal(after[step], expected)
        kept = 1 - (bottom - top) * (right - left) / 30
        assert plan.shares[step] == kept


def test_boxes_have_the_drawn_area_before_the_edge_cuts_them() -> None:
    plan = draw_mixing(Mixing(), 4000, 2, (32, 32), named_generator(0), first_turn=0)
    cut = plan.is_cutmix
    assert 0.5 < plan.shares[cut].mean() < 0.75, "cut boxes keep more than the uniform share's half"
    assert abs(plan.shares[~cut].mean() - 0.5) < 0.03


def test_partners_are_permutations_and_label_the_second_half() -> None:
    plan = draw_mixing(Mixing(), 10, 7, SIZE, named_generator(0))
    assert all(sorted(row) == list(range(7)) for row in plan.partners.tolist())
    labels = torch.from_numpy(named_generator(0, "labels").integers(0, 9, (10, 7)))
    own, partners = mixed_labels(labels, plan)
    assert torch.equal(own, labels)
    assert np.array_equal(partners.numpy(), np.take_along_axis(labels.numpy(), plan.partners, axis=1))


def test_a_selected_range_is_the_same_as_the_whole() -> None:
    plan = draw_mixing(Mixing(), 10, 7, SIZE, named_generator(0))
    whole = apply_mixing(images(10, 7), plan)
    assert torch.equal(apply_mixing(images(10, 7)[3:6], plan.select(slice(3, 6))), whole[3:6])
