from importlib.machinery import ModuleSpec

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking import choose_trackers
from fedfeast.presentation.tracking.choice import TRACKERS


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["tensorbord"], "--track 'tensorbord' is no tracker: choose among tensorboard, mlflow, wandb."),
        (["mlflow="], "--track 'mlflow=' names no destination: leave the = out, or name one after it."),
        (["mlflow", "mlflow=here"], "--track mlflow is given twice: give it once."),
    ],
)
def test_what_cannot_be_chosen_is_said(asked: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput) as error:
        choose_trackers(asked)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("name", "extra"), [("tensorboard", "track"), ("mlflow", "mlflow"), ("wandb", "wandb")])
def test_a_missing_library_is_one_sentence_with_the_extra(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(library: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr("fedfeast.presentation.tracking.choice.find_spec", nothing)
    with pytest.raises(InvalidInput) as error:
        choose_trackers([name])
    assert str(error.value) == f"--track {name} needs the {name} package: pip install 'fedfeast[{extra}]'."


def test_destinations_are_as_given_and_name_no_password() -> None:
    chosen = choose_trackers(["mlflow=https://me:secret@host:5000/a", "wandb=team/project", "tensorboard=events"])
    assert [tracker.where for tracker in chosen] == ["https://host:5000/a", "team/project", "events"]
    assert list(TRACKERS) == ["tensorboard", "mlflow", "wandb"]
