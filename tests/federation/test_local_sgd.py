from dataclasses import FrozenInstanceError

import pytest

from fedfeast.federation import LocalSgd
from fedfeast.recipes.sections import TrainingSection


def test_the_defaults_are_those_of_a_recipe() -> None:
    training = TrainingSection()
    assert LocalSgd() == LocalSgd(training.weight_decay, training.clip_norm) == LocalSgd(5e-4, 10.0)


def test_it_is_a_frozen_record() -> None:
    with pytest.raises(FrozenInstanceError):
        LocalSgd().clip_norm = 1.0  # type: ignore[misc]
