"""Which trackers a command or caller asked for."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking.mlflow import MLflowTracker
from fedfeast.presentation.tracking.tensorboard import TensorBoardTracker
from fedfeast.presentation.tracking.tracker import Tracker
from fedfeast.presentation.tracking.wandb import WandbTracker

# By name: what makes one for a destination, the library, and the extra that brings it.
TRACKERS: dict[str, tuple[Callable[[str | None], Tracker], str, str]] = {
    "tensorboard": (TensorBoardTracker, "tensorboard", "track"),
    "mlflow": (MLflowTracker, "mlflow", "mlflow"),
    "wandb": (WandbTracker, "wandb", "wandb"),
}


def choose_trackers(asked: Sequence[str]) -> list[Tracker]:
    """Return the trackers asked for as NAME or NAME=WHERE; refuse unknown ones and missing libraries."""
    chosen: dict[str, Tracker] = {}
    for one in asked:
        name, equals, where = (part.strip() for part in one.partition("="))
        if name not in TRACKERS:
            raise InvalidInput(f"--track {one!r} is no tracker: choose among {', '.join(TRACKERS)}.")
        if equals and not where:
            raise InvalidInput(f"--track {one!r} names no destination: leave the = out, or name one after it.")
        if name in chosen:
            raise InvalidInput(f"--track {name} is given twice: give it once.")
        make, library, extra = TRACKERS[name]
        if find_spec(library) is None:
            raise InvalidInput(f"--track {name} needs the {library} package: pip install 'fedfeast[{extra}]'.")
        chosen[name] = make(where or None)
    return list(chosen.values())
