"""The runs and ladders that a server shows, looked at by one thread."""

import threading
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.server.offer import Offer
from fedfeast.server.shown.watched_ladder import WatchedLadder
from fedfeast.server.shown.watched_run import WatchedRun
from fedfeast.serving.ladder import INDEX

# Choice: a round of the smallest recipe takes half a second; nobody sees a faster change.
LOOK_EVERY_SECONDS = 1.0

Shown = WatchedRun | WatchedLadder


class Collection:
    """Runs and ladders by name, in the order they were given."""

    def __init__(self, folders: Sequence[Path | str]) -> None:
        if not folders:
            raise InvalidInput("no run was given: name at least one run's or ladder's folder.")
        self.runs: dict[str, Shown] = {}
        for folder in map(Path, folders):
            name = self._free_name(folder.resolve().name)
            is_ladder = (folder / INDEX).is_file()
            self.runs[name] = WatchedLadder(folder, name) if is_ladder else WatchedRun(folder, name)
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="fedfeast-watch", daemon=True)

    def __enter__(self) -> "Collection":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._watcher.join()

    def find(self, name: str | None) -> Shown | None:
        """Return a run by its name; the first one where none is named."""
        return next(iter(self.runs.values())) if name is None else self.runs.get(name)

    def offer_of(self, variant: str) -> Offer | None:
        """Return the offer that has a variant, of whichever run."""
        return next((offer for run in self.runs.values() if (offer := run.offer_of(variant)) is not None), None)

    def has_lost(self, variant: str) -> bool:
        """Return whether a variant was on offer until the folder of its run vanished."""
        return any(run.has_lost(variant) for run in self.runs.values())

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_SECONDS):
            for run in self.runs.values():
                try:
                    run.refresh()
                except Exception as error:  # whatever a damaged file leads to, other runs are looked at further
                    run.note_problem(in_one_line(error) or type(error).__name__)

    def _free_name(self, wanted: str) -> str:
        numbered = (f"{wanted}-{number}" for number in count(2))
        return next(name for name in chain([wanted], numbered) if name not in self.runs)
