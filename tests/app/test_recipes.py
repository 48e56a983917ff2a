import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Command = Callable[..., CompletedProcess[str]]


def test_every_shipped_recipe_is_listed(fedfeast: Command) -> None:
    listed = json.loads(fedfeast("recipes", "list", "--json").stdout)
    digits = next(one for one in listed if one["name"] == "digits-ladder")
    assert digits["summary"].startswith("The embedded default: scikit-learn's handwritten digits")
    assert (digits["data"], digits["is_here"], digits["clients"], digits["rounds"]) == ("digits", True, 40, 60)
    shown = fedfeast("recipes", "list").stdout
    assert all(one["name"] in shown for one in listed)


def test_a_recipe_is_shown_as_it_ships_and_can_be_trained_from_a_copy(fedfeast: Command, tmp_path: Path) -> None:
    done = fedfeast("recipes", "show", "digits")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Scikit-learn's handwritten digits")
    (tmp_path / "mine.toml").write_text(done.stdout)
    assert fedfeast("recipes", "show", tmp_path / "mine.toml").stdout == done.stdout
    assert json.loads(fedfeast("recipes", "show", "digits", "--json").stdout) == tomllib.loads(done.stdout)


def test_every_field_and_settings_of_a_recipe(fedfeast: Command) -> None:
    whole = tomllib.loads(fedfeast("recipes", "show", "digits", "--all").stdout)
    assert whole["training"]["momentum"] == 0.0, "a default"
    changed = tomllib.loads(fedfeast("recipes", "show", "digits", "--set", "training.rounds=3").stdout)
    assert changed["training"] == {**whole["training"], "rounds": 3}


def test_an_unknown_recipe_is_one_sentence(refused: Callable[..., None]) -> None:
    refused("unknown recipe 'digit' (did you mean 'digits'?)", "recipes", "show", "digit")
