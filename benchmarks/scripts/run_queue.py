"""Train a list of long runs within the time there is, some at once; go on with it at the next call.

python benchmarks/scripts/run_queue.py benchmarks/queues/plus.toml --runs RUNS --kept KEPT --minutes 8
    --set data.folder=DATA

A queue is a TOML file with a table [[run]] for every run, in their order: name, recipe and, below [run.set], settings.
--minutes are counted as by run_in_parts.py, which trains each of them: leave two more for the end of all. What a
finished run came to is in KEPT/NAME (long_runs.py), and the validated rounds of the others in KEPT/NAME-so-far.jsonl.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import long_runs

from fedfeast.errors import InvalidInput
from fedfeast.runs import Run
from fedfeast.studies.side_by_side.mps import using_mps
from fedfeast.whole_files import write_text

TRAIN = Path(__file__).with_name("run_in_parts.py")
LEAST_MINUTES = 0.5  # that are worth starting a run for
LOOK_SECONDS = 2


@dataclass(frozen=True)
class Queued:
    """A run of the list."""

    name: str
    recipe: str
    settings: tuple[str, ...]

    def command(self, folder: Path, minutes: float, settings: Sequence[str]) -> list[str]:
        """Return what trains it for some minutes."""
        words = [sys.executable, str(TRAIN), "train", self.recipe, "--out", str(folder), "--minutes", f"{minutes:.3f}"]
        return [*words, *(word for one in (*self.settings, *settings) for word in ("--set", one))]

    @property
    def typed(self) -> str:
        """What a person types to train it."""
        return shlex.join(["fedfeast", "train", self.recipe, *(f"--set={one}" for one in self.settings)])


def read_queue(file: Path) -> list[Queued]:
    """Return the runs of a queue."""
    try:
        tables = tomllib.loads(file.read_text())["run"]
        queue = [Queued(one["name"], one["recipe"], _settings(one.get("set", {}))) for one in tables]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{file} is no queue ({type(error).__name__}: {error}): give every [[run]] a name and a recipe."
        ) from error
    names = [one.name for one in queue]
    for name in names:
        if names.count(name) > 1 or Path(name).name != name:
            raise InvalidInput(f"{file}: the name {name!r} is there twice or no plain name; every run needs its own.")
    return queue


def _settings(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as they are typed."""
    return tuple(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in table.items())


class Queue:
    """The runs of a list, their folders, and what is at work."""

    def __init__(self, runs: Sequence[Queued], folder: Path, kept: Path, settings: Sequence[str]) -> None:
        self._folder, self._kept, self._settings = folder, kept, settings
        self._waiting = [one for one in runs if not self._is_finished(one)]
        self._at_work: dict[Queued, subprocess.Popen[bytes]] = {}
        self._failed = list[str]()
        for path in (folder, kept):
            path.mkdir(parents=True, exist_ok=True)
        for one in runs:
            if one not in self._waiting:
                self._keep(one)

    def work(self, minutes: float, at_once: int, variables: Mapping[str, str]) -> list[str]:
        """Train until the list or the time is at its end; return the names of runs that failed."""
        end = time.monotonic() + 60 * minutes
        while True:
            left = (end - time.monotonic()) / 60
            while self._waiting and len(self._at_work) < at_once and left >= LEAST_MINUTES:
                one = self._waiting.pop(0)
                command = one.command(self._folder / one.name, left, self._settings)
                self._at_work[one] = subprocess.Popen(command, env={**os.environ, **variables})
            if not self._at_work:
                return self._failed
            time.sleep(LOOK_SECONDS)
            for one, process in list(self._at_work.items()):
                self._tell(one)
                if process.poll() is not None:
                    del self._at_work[one]
                    if process.returncode:
                        self._failed.append(one.name)
                    elif self._is_finished(one):
                        self._keep(one)

    def _is_finished(self, one: Queued) -> bool:
        return (self._folder / one.name / "summary.json").is_file()

    def _keep(self, one: Queued) -> None:
        self._so_far(one).unlink(missing_ok=True)
        if not (self._kept / one.name).exists():
            long_runs.keep(Run.open(self._folder / one.name), self._kept / one.name, one.typed)

    def _tell(self, one: Queued) -> None:
        """Copy the validated rounds of a run that may not end here."""
        metrics = self._folder / one.name / "metrics.jsonl"
        if metrics.is_file():
            lines = [line for line in metrics.read_text().splitlines() if '"validation_score"' in line]
            write_text(self._so_far(one), "".join(f"{line}\n" for line in lines))

    def _so_far(self, one: Queued) -> Path:
        return self._kept / f"{one.name}-so-far.jsonl"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queue", type=Path)
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the runs' own folders")
    parser.add_argument("--kept", type=Path, required=True, help="the folder of what runs came to")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="of every run, key=value")
    given = parser.parse_args(words)
    try:
        queue = Queue(read_queue(given.queue), given.runs, given.kept, given.settings)
        with using_mps(None if given.at_once > 1 else False) as mps:
            print(f"{given.at_once} at once, {mps.sentence}", flush=True)
            failed = queue.work(given.minutes, given.at_once, mps.variables)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if failed:
        raise SystemExit(f"failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
