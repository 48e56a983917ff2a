from fedfeast.methods import METHODS
from fedfeast.studies.arms import LABELS, OWN_SETTINGS, OWN_VARIED, method_arm


def test_an_arm_is_a_method_under_its_own_protocol() -> None:
    assert method_arm("feast").settings == {"method.name": "feast"}
    assert method_arm("fiarse").settings == {"method.name": "fiarse", "training.weight_decay": 0.0}
    arm = method_arm("heterofl", {"population.gamma": 0.0}, "gamma 0")
    assert (arm.name, arm.label) == ("heterofl, gamma 0", "HeteroFL, gamma 0")
    assert arm.settings == {"method.name": "heterofl", "population.gamma": 0.0}


def test_every_method_has_a_label_and_an_unknown_one_its_name() -> None:
    assert set(METHODS) <= set(LABELS)
    assert method_arm("mine").label == "mine"


def test_what_methods_change_of_their_own_is_allowed_to_vary() -> None:
    assert {key for settings in OWN_SETTINGS.values() for key in settings} <= set(OWN_VARIED)
