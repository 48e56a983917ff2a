"""As many rounds for every candidate as fit the same time here: a few are tried, and what they took is kept."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.recipes.recipe import resolve_recipe
from fedfeast.runs.time_budget import RoundTimes, count_validations, measure_rounds
from fedfeast.studies.choosing.candidates import Candidate
from fedfeast.studies.running import TIMES_FILE, folder_name
from fedfeast.units import format_seconds
from fedfeast.whole_files import write_json

# Settings that follow the number of rounds.
SIZED = ("training.rounds", "training.warmup_rounds", "evaluation.every_rounds", "checkpoint.every_rounds")

SWEEPS = 3  # of trials over all candidates

OnTrial = Callable[[int, int, str], None]  # a trial begins: its number, of so many, whose it is


@dataclass(frozen=True)
class Sized:
    """A candidate with its rounds, and how long its run will take."""

    candidate: Candidate
    rounds: int
    seconds_per_round: float
    seconds: float  # in all, validations and the curves at the end included

    def __str__(self) -> str:
        return f"{self.candidate.arm.label} {count_rounds(self.rounds)} of {format_seconds(self.seconds_per_round)}"


def count_rounds(rounds: int) -> str:
    """Return so many rounds in words."""
    return f"{rounds} round{'s' if rounds != 1 else ''}"


def size_candidates(
    candidates: Sequence[Candidate], minutes: float, folder: Path, given: Sequence[str], on_trial: OnTrial
) -> list[Sized]:
    """Return the candidates with as many rounds as they train in so many minutes; settings that are given stay."""
    seconds = 60 * minutes
    times = _measure(candidates, seconds, folder, on_trial)
    for candidate, measured in zip(candidates, times, strict=True):
        if measured.undisturbed_seconds > seconds:
            least = ceil(100 * max(one.undisturbed_seconds for one in times) / 60) / 100
            raise InvalidInput(
                f"--minutes {minutes:g} is too short: a round of {candidate.arm.label} takes "
                f"{format_seconds(measured.undisturbed_seconds)} here; give at least {least:g}, and rather many times "
                "that, or name quicker candidates with --arm."
            )
    # As many for each: who is validated more often has more rounds to choose the best from.
    validations = min(count_validations(seconds, one.seconds_per_validation) for one in times)
    return [_sized(*pair, seconds, validations, given) for pair in zip(candidates, times, strict=True)]


def _sized(candidate: Candidate, times: RoundTimes, seconds: float, validations: int, given: Sequence[str]) -> Sized:
    training = candidate.recipe.training
    rounds = int(seconds / times.undisturbed_seconds)
    warmup = round(training.warmup_rounds * rounds / training.rounds)
    settings: dict[str, Any] = dict(
        zip(SIZED, (rounds, warmup, ceil(rounds / validations), times.save_every), strict=True)
    )
    recipe = resolve_recipe(candidate.recipe, {key: value for key, value in settings.items() if key not in given})
    in_all = rounds * times.undisturbed_seconds + validations * times.seconds_per_validation + times.seconds_at_end
    return Sized(replace(candidate, recipe=recipe), rounds, times.undisturbed_seconds, in_all)


def _measure(candidates: Sequence[Candidate], seconds: float, folder: Path, on_trial: OnTrial) -> list[RoundTimes]:
    """Try a few rounds of every candidate; what the folder has of them is not tried again, so that rounds stay."""
    kept = _read(folder)
    names = [folder_name(candidate.recipe) for candidate in candidates]
    # All in turn, several times over: what else the machine does then hits everybody, and the quickest trial counts.
    for sweep in range(SWEEPS):
        for number, (name, candidate) in enumerate(zip(names, candidates, strict=True), start=1):
            if len(kept.get(name, [])) <= sweep:
                on_trial(sweep * len(candidates) + number, SWEEPS * len(candidates), candidate.arm.label)
                kept.setdefault(name, []).append(measure_rounds(candidate.recipe, seconds / SWEEPS))
                folder.mkdir(parents=True, exist_ok=True)
                trials = {one: [asdict(times) for times in of_one] for one, of_one in kept.items()}
                write_json(folder / TIMES_FILE, trials)
    return [min(kept[name][:SWEEPS], key=lambda times: times.undisturbed_seconds) for name in names]


def _read(folder: Path) -> dict[str, list[RoundTimes]]:
    """Return the trials of every candidate that a folder has."""
    file = folder / TIMES_FILE
    try:
        kept = json.loads(file.read_text())
        return {name: [RoundTimes(**times) for times in trials] for name, trials in kept.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{file} is damaged: delete it, and rounds are tried anew.") from error
