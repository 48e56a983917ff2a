from fedfeast.methods import METHODS
from fedfeast.studies.arms import LABELS, method_arm


def test_an_arm_is_a_method_with_further_settings() -> None:
    assert method_arm("feast").settings == {"method.name": "feast"}
    arm = method_arm("heterofl", {"population.gamma": 0.0}, "gamma 0")
    assert (arm.name, arm.label) == ("heterofl, gamma 0", "HeteroFL, gamma 0")
    assert arm.settings == {"method.name": "heterofl", "population.gamma": 0.0}


def test_every_method_has_a_label_and_an_unknown_one_its_name() -> None:
    assert set(METHODS) <= set(LABELS)
    assert method_arm("mine").label == "mine"
