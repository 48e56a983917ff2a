from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.methods import METHODS
from fedfeast.recipes import load_recipe
from fedfeast.studies.choosing.candidates import LeftOut, find_candidates


def names(recipe: str, settings: dict[str, object], wanted: tuple[str, ...] = ()) -> tuple[list[str], dict[str, str]]:
    candidates, left_out = find_candidates(load_recipe(recipe, settings), wanted)
    return [one.recipe.method_name for one in candidates], {one.name: str(one) for one in left_out}


def test_every_method_suits_the_digits() -> None:
    assert names("digits", {}) == (list(METHODS), {})


def test_a_method_whose_levels_clients_do_not_afford_is_left_out_with_the_reason() -> None:
    suited, left_out = names("digits", {"resnet.stage_channels": [64, 64, 128, 256]}, ("feast", "fjord"))
    assert suited == ["feast"]
    assert left_out["fjord"].startswith("FjORD: client client")
    assert "below the smallest network's" in left_out["fjord"]
    assert "raise" not in left_out["fjord"], "a line has the reason; the whole sentence is for programs"


def test_what_the_protocol_does_not_allow_is_left_out() -> None:
    suited, left_out = names("digits", {"fleet.mode": "buffered"}, ("feast", "superfednas"))
    assert suited == ["feast"]
    assert left_out["superfednas"] == (
        "SuperFedNAS: gives roles and weights to a cohort as a whole, and fleet.mode = 'buffered' merges answers of "
        "several"
    )


def test_a_network_of_ones_own_has_the_methods_that_can_cut_it(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "import torch\nfrom fedfeast import elastic\n\n"
        "@elastic(width=[2, 4])\ndef net(width, *, classes):\n"
        "    layers = torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, classes)\n"
        "    return torch.nn.Sequential(*layers)\n"
    )
    settings = {"network.builder": f"{source}:net", "population.least_macs": 1e3, "variants.num_targets": 2}
    suited, left_out = names("digits", settings, ("heterofl", "nested"))
    assert suited == ["nested"]
    assert left_out == {"heterofl": "HeteroFL: trains the package's ResNet and cannot train network.builder"}


def test_the_recipes_own_method_keeps_its_options() -> None:
    recipe = load_recipe("digits", {"method.name": "fedavg", "method.max_macs": 1e6})
    candidates, _ = find_candidates(recipe, ("fedavg", "feast"))
    by_name = {one.recipe.method_name: one.recipe for one in candidates}
    assert by_name["fedavg"].method.model_dump()["max_macs"] == 1e6
    greedy = load_recipe("digits", {"method.name": "superfednas", "method.constrained": False})
    _, left_out = find_candidates(greedy, ("superfednas", "feast"))
    assert str(left_out[0]) == "SuperFedNAS: its options make clients train or serve what they cannot afford"


def test_a_recipe_that_no_method_suits_is_refused_in_a_sentence() -> None:
    recipe = load_recipe("digits", {"population.least_macs": 10, "population.greatest_macs": 20})
    with pytest.raises(InvalidInput, match=r"no method suits recipe digits, feast for this reason: no client can aff"):
        find_candidates(recipe)
    with pytest.raises(InvalidInput, match="--arm 'fest' is no method: choose from feast, "):
        find_candidates(recipe, ("fest",))


def test_a_reason_without_a_remedy_is_said_as_it_is() -> None:
    assert str(LeftOut("mine.py:Mine", "it has no levels.")) == "mine.py:Mine: it has no levels"
