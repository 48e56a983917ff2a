import json
from dataclasses import asdict
from pathlib import Path

import pytest
from flwr.app import RecordDict

from fedfeast.data import OFFICIAL, DatasetFacts, Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.flower.messages import Unreadable, to_json
from fedfeast.flower.terms import Terms, read_terms, space_of
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.variants import write_cache

NORMALISATION = Normalisation((0.3,), (0.2,))


def test_terms_survive_the_wire_with_the_files_they_name(tmp_path: Path) -> None:
    method, parts = build_method(load_recipe("digits"))
    cache = tmp_path / "my.csv"
    write_cache(parts.cache, parts.elastic, cache)
    recipe = load_recipe("digits", {"variants.cache": str(cache), "training.rounds": 7})
    terms = Terms.of(recipe, method, NORMALISATION, ("zero", "one"))
    cache.unlink()  # a client has no such file
    received = read_terms(RecordDict({"terms": to_json(terms.to_json())}))
    assert received == terms
    with received.opened() as theirs:
        assert theirs.training.rounds == 7
        assert theirs.variants.cache != str(cache)
        assert space_of(build_method(theirs)[0]) == terms.space
        place = Path(theirs.variants.cache)
        assert place.is_file()
    assert not place.exists()


def test_token_ids_have_no_normalisation() -> None:
    assert read_terms(told(normalisation=None)).normalisation is None


def test_another_space_has_another_hash() -> None:
    ours, theirs = (
        space_of(build_method(load_recipe("digits", settings))[0]) for settings in ({}, {"method.name": "heterofl"})
    )
    assert ours != theirs


def test_branches_of_either_sign_are_two_networks_and_their_first_scale_is_the_servers_alone() -> None:
    signed, scaled, plain = (
        space_of(build_method(load_recipe("digits", settings))[0])
        for settings in ({"network.branch": "signed"}, {"network.branch_scale": 0.2}, {})
    )
    assert signed != plain == scaled
    recipe = load_recipe("digits", {"network.branch": "signed", "network.branch_scale": 0.2})
    method, _ = build_method(recipe)
    terms = Terms.of(recipe, method, NORMALISATION, ())
    assert terms.space == signed
    with terms.opened() as theirs:
        assert build_method(theirs)[0].network == method.network


def test_where_the_data_lie_is_not_told(tmp_path: Path) -> None:
    recipe = load_recipe("digits", {"data.folder": str(tmp_path)})
    terms = Terms.of(recipe, build_method(recipe)[0], NORMALISATION, ())
    assert str(tmp_path) not in json.dumps(terms.to_json())


def test_facts_of_any_kind_of_data_survive_the_wire() -> None:
    facts = OFFICIAL["shakespeare"].facts
    assert read_terms(told(facts=asdict(facts))).facts == facts
    old = {"classes": 2, "channels": 1, "side": 4, "train_examples": 5, "test_examples": 3}
    assert read_terms(told(facts=old)).facts == DatasetFacts(2, 1, 4, 5, 3)
    with pytest.raises(Unreadable, match="kind"):
        read_terms(told(facts={**old, "kind": "sounds"}))


def test_a_method_file_must_be_on_the_client(tmp_path: Path) -> None:
    recipe = load_recipe("digits")
    terms = Terms.of(recipe, build_method(recipe)[0], NORMALISATION, ())
    with pytest.raises(InvalidInput, match="no Python file"), terms.opened({"method": {"name": "gone.py:Mine"}}):
        pass


def told(**changes: object) -> RecordDict:
    """A server's terms for the digits, changed."""
    recipe = load_recipe("digits")
    content = Terms.of(recipe, build_method(recipe)[0], NORMALISATION, ()).to_json()
    return RecordDict({"terms": to_json({**content, **changes})})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"files": {"../../.bashrc": "evil"}}, "files"),
        ({"more": 1}, "more"),
        ({"recipe": 5}, "recipe"),
        ({"class_names": "no list"}, "class_names"),
        ({"normalisation": {"mean": [float("nan")], "deviation": [0.2]}}, "normalisation"),
        ({"facts": {"classes": -1}}, "facts"),
        ({"builder_sha256": "rm -rf"}, "builder_sha256"),
    ],
)
def test_terms_of_another_kind_are_unreadable(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(Unreadable, match=f"its terms has {complaint}"):
        read_terms(told(**changes))


def test_no_path_of_the_servers_recipe_is_opened_here(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("secret")
    named = (
        f'[variants]\ncache = "{tmp_path}/mine.csv"',
        f'[population]\nsource = "file"\nfile = "{tmp_path}/mine.csv"',
        f'[partition]\nfile = "{tmp_path}/mine.csv"',
        f'split_file = "{tmp_path}/mine.csv"',
        f'[simulation]\nspeeds = "{tmp_path}/mine.csv"',
    )
    for section in named:
        terms = read_terms(told(recipe=f'name = "a"\n[data]\nname = "digits"\n{section}\n'))
        with pytest.raises(InvalidInput, match="names a file that the terms do not bring"), terms.opened():
            pytest.fail("must not be opened")
    for name in (str(tmp_path), "../mine", ".."):
        terms = read_terms(told(recipe=f'name = "a"\n[data]\nname = "{name}"\n'))
        with pytest.raises(InvalidInput, match="names a file that the terms do not bring"), terms.opened():
            pytest.fail("must not be opened")


def test_places_of_a_servers_recipe_are_not_taken_over(tmp_path: Path) -> None:
    text = f'name = "a"\n[data]\nname = "digits"\nfolder = "{tmp_path}"\n[network]\nweights = "{tmp_path}/weights"\n'
    with read_terms(told(recipe=text)).opened() as theirs:
        assert (theirs.data.folder, theirs.network.weights) == (None, None)
    with read_terms(told(recipe=text)).opened({"data.folder": "mine"}) as theirs:
        assert theirs.data.folder == "mine"


def test_a_recipe_nested_beyond_all_depth_is_a_sentence() -> None:
    with (
        pytest.raises(InvalidInput, match="it is nested too deeply"),
        read_terms(told(recipe=f"a = {'[' * 5000}")).opened(),
    ):
        pytest.fail("must not be opened")
