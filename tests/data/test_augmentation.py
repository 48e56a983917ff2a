import numpy as np
import pytest
import torch

from fedfeast.data.augmentation import Augmentation, apply_augmentation, draw_augmentation, normalise
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator


def images(count: int = 16) -> torch.Tensor:
    generator = named_generator(0, "images")
    return torch.from_numpy(generator.integers(1, 256, (count, 3, 6, 5)).astype(np.uint8))


def test_nothing_asked_nothing_changed() -> None:
    plan = draw_augmentation(Augmentation(), 16, named_generator(0))
    assert torch.equal(apply_augmentation(images(), plan), images())


def test_crop_and_flip_example_by_example() -> None:
    plan = draw_augmentation(Augmentation(crop_padding=2, flip=True), 16, named_generator(0))
    augmented = apply_augmentation(images(), plan)
    assert 0 < plan.flips.sum() < 16
    for example, (row, column) in enumerate(plan.offsets):
        padded = torch.nn.functional.pad(images()[example], (2, 2, 2, 2))
        expected = padded[:, row : row + 6, column : column + 5]
        if plan.flips[example]:
            expected = expected.flip(2)
        assert torch.equal(augmented[example], expected)


def test_offsets_reach_every_place() -> None:
    plan = draw_augmentation(Augmentation(crop_padding=1), 500, named_generator(0))
    assert {tuple(offset) for offset in plan.offsets.tolist()} == {(r, c) for r in range(3) for c in range(3)}


def test_a_selected_range_is_the_same_as_the_whole() -> None:
    plan = draw_augmentation(Augmentation(2, True, (2, 9)), 16, named_generator(0))
    whole = apply_augmentation(images(), plan)
    part = apply_augmentation(images()[5:9], plan.select(slice(5, 9)))
    assert torch.equal(whole[5:9], part)


def test_normalise() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 2, 1, 1)
    scaled = normalise(pixels, (0.5, 0.25), (0.5, 0.125), torch.float64)
    torch.testing.assert_close(scaled.flatten(1), torch.tensor([[-1.0, -2.0], [1.0, 6.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"crop_padding": -1}, "crop_padding = -1"),
        ({"randaugment": (-1, 6)}, r"randaugment = \[-1, 6\]"),
        ({"randaugment": (2, 31)}, r"randaugment = \[2, 31\]"),
    ],
)
def test_bad_hyper_parameters_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Augmentation(**arguments)  # type: ignore[arg-type]
