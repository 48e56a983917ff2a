"""What a study is: its recipes, its arms, its options."""

from typing import Any

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.methods import METHODS
from fedfeast.recipes import load_recipe, packaged_recipes
from fedfeast.studies.arms import LABELS, method_arm
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.catalogue.rules import TRAINING_RULES
from fedfeast.studies.options import StudyOptions, parse_seeds
from fedfeast.studies.study import LETTER, RECIPES


def test_every_data_set_has_its_recipe() -> None:
    assert set(RECIPES.values()) <= set(packaged_recipes())
    for dataset, recipe in RECIPES.items():
        assert load_recipe(recipe).data.name == ("cifar100" if dataset == LETTER else dataset)
        assert load_recipe(recipe).name == recipe


def test_an_arm_is_a_method_with_further_settings() -> None:
    assert method_arm("feast").settings == {"method.name": "feast"}
    arm = method_arm("heterofl", {"population.gamma": 0.0}, "gamma 0")
    assert (arm.name, arm.label) == ("heterofl, gamma 0", "HeteroFL, gamma 0")
    assert arm.settings == {"method.name": "heterofl", "population.gamma": 0.0}


def test_every_method_has_a_label_and_an_unknown_one_its_name() -> None:
    assert set(METHODS) <= set(LABELS)
    assert method_arm("mine").label == "mine"


def test_the_recipe_of_a_study() -> None:
    assert StudyOptions().recipe(TRAINING_RULES, {}).name == "cifar100-paper"
    assert StudyOptions().recipe(DIGITS, {}).training.rounds == 60
    options = StudyOptions("digits", 3, (5, 6), ["training.batch_size=8"])
    recipe = options.recipe(TRAINING_RULES, {"method.rule": "min-max"})
    assert (recipe.name, recipe.training.rounds, recipe.training.batch_size, recipe.seed) == ("digits", 3, 8, 5)
    assert recipe.settings()["method.rule"] == "min-max"
    assert StudyOptions(settings={"training.batch_size": 8}).given() == {"training.batch_size": 8}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "--rounds 0: give at least 1"),
        ({"dataset": "cifar"}, "--dataset 'cifar' is unknown: choose one of cifar100, cifar100-authors, cinic10"),
        ({"seeds": ()}, "--seeds names no seed"),
        ({"seeds": (0, 1, 0)}, "--seeds 0,1,0 repeats 0"),
        ({"settings": ["seed=3"]}, "--set seed=... is not for studies: use --seeds"),
        ({"settings": ["training.rounds=3"]}, "use --rounds"),
        ({"settings": {"method.name": "fedavg"}}, "the study chooses its methods"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        StudyOptions(**options)
    assert sentence in str(refusal.value)


def test_a_study_of_other_data_is_refused() -> None:
    with pytest.raises(InvalidInput, match="study digits-all runs on digits: leave out --dataset cifar100"):
        StudyOptions("cifar100").recipe(DIGITS, {})


def test_seeds_are_read_from_a_list() -> None:
    assert parse_seeds("0, 1,2") == (0, 1, 2)
    with pytest.raises(InvalidInput, match="--seeds '0;1' is no list of seeds"):
        parse_seeds("0;1")
