"""How a study is shortened or changed, checked before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.methods import find_method
from fedfeast.presentation.tracking import choose_trackers
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.recipe import parse_setting
from fedfeast.studies.arms import BASELINES, Arm
from fedfeast.studies.study import LETTER, RECIPES, Study

# Settings that a study decides, or that have an option of their own.
RESERVED = {
    "name": "the study names its runs",
    "method": "the study chooses its methods",
    "method.name": "the study chooses its methods",
    "seed": "use --seeds",
    "training.rounds": "use --rounds",
}


@dataclass(frozen=True)
class StudyOptions:
    """Which data set, how many rounds, which seeds, and settings on top of the recipe for all arms."""

    dataset: str | None = None
    rounds: int | None = None
    seeds: Sequence[int] = (0,)
    settings: Mapping[str, Any] | Sequence[str] = ()
    runs: Path | str | None = None  # the folder of all runs; beside the study's by default, shared with other studies
    arms: Sequence[str] = ()  # by name, where a study's arms can be run apart; without any, all of them
    track: Sequence[str] = ()  # trackers that watch every run, named as --track names them

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InvalidInput(f"--rounds {self.rounds}: give at least 1.")
        if self.dataset is not None and self.dataset not in RECIPES:
            raise InvalidInput(f"--dataset {self.dataset!r} is unknown: choose one of {', '.join(RECIPES)}.")
        if not self.seeds:
            raise InvalidInput("--seeds names no seed: give at least one, e.g. --seeds 0,1,2.")
        for position, seed in enumerate(self.seeds):
            if seed in self.seeds[:position]:
                raise InvalidInput(f"--seeds {','.join(map(str, self.seeds))} repeats {seed}: give every seed once.")
        choose_trackers(self.track)  # what is wrong with them is said before anything is trained
        for key in self.given():
            if key in RESERVED:
                raise InvalidInput(f"--set {key}=... is not for studies: {RESERVED[key]}.")

    def given(self) -> dict[str, Any]:
        """Return the settings by their dotted names."""
        return dict(self.settings if isinstance(self.settings, Mapping) else map(parse_setting, self.settings))

    def chosen(self, study: Study, arms: Sequence[Arm]) -> list[Arm]:
        """Return the arms that are asked for, in the study's order."""
        names = [arm.name for arm in arms]
        if self.arms and not study.separable:
            raise InvalidInput(f"--arm {self.arms[0]!r}: study {study.name} compares all of its arms, so leave it out.")
        for name in self.arms:
            if name not in names:
                raise InvalidInput(f"--arm {name!r} is none of study {study.name}: choose from {', '.join(names)}.")
        return [arm for arm in arms if arm.name in self.arms or not self.arms]

    def recipe(self, study: Study, further: Mapping[str, Any]) -> Recipe:
        """Return a study's recipe with the first seed, the settings given and further ones on top."""
        dataset = self.dataset or study.datasets[0]
        if dataset not in study.datasets:
            raise InvalidInput(
                f"study {study.name} runs on {', '.join(study.datasets)}: leave out --dataset {dataset}."
            )
        settings: dict[str, Any] = {"seed": self.seeds[0]}
        if self.rounds is not None:
            settings["training.rounds"] = self.rounds
        own = letter_settings(str(further.get("method.name", "feast"))) if dataset == LETTER else {}
        return load_recipe(RECIPES[dataset], {**settings, **own, **self.given(), **further})


def letter_settings(method: str) -> dict[str, Any]:
    """Return in what the authors' own runs of a method differ from those of FEAST."""
    settings: dict[str, Any] = {"method.preset": "authors"} if "authors" in find_method(method).presets else {}
    if method in BASELINES:
        settings |= {"evaluation.selection": "largest", "evaluation.anchors": None}
    return settings


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read a list of seeds like 0,1,2."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--seeds {text!r} is no list of seeds: write it like 0,1,2.") from None
