"""MotionSense: what a phone in the pocket felt during six activities, by person and trial, as windows of 2.56 s."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.sources import list_files, read_arrays, read_files
from fedfeast.errors import InvalidInput

ACTIVITIES = {
    "dws": "downstairs",
    "jog": "jogging",
    "sit": "sitting",
    "std": "standing",
    "ups": "upstairs",
    "wlk": "walking",
}
# Columns of a file, with the steps in which a unit (rad, g, rad/s, g) is stored: no value leaves int16, none loses more
# than the sensor's noise.
CHANNELS = {
    **dict.fromkeys(("attitude.roll", "attitude.pitch", "attitude.yaw"), 10_000),
    **dict.fromkeys(("gravity.x", "gravity.y", "gravity.z"), 30_000),
    **dict.fromkeys(("rotationRate.x", "rotationRate.y", "rotationRate.z"), 1_600),
    **dict.fromkeys(("userAcceleration.x", "userAcceleration.y", "userAcceleration.z"), 4_000),
}
MOVEMENT = slice(6, 12)  # rotation rate and acceleration, which depend less on how the phone lay
LENGTH, STEP = 128, 64
TEST_TRIALS = 10  # codes above are the short trials: the test set
_DOUBLED = (1, "sit", 13)  # the same recording as this person's trial 5
_TRIAL = re.compile(r"(?:^|/)([a-z]{3})_([0-9]{1,2})/sub_([0-9]{1,2})\.csv$")  # activity, trial, person


class Trial(NamedTuple):
    """One recording of a person."""

    person: int
    activity: str
    code: int
    samples: NDArray[np.int16]  # (channels, moments)


def read_motionsense(source: Path) -> Decoded:
    """Read rotation rate and acceleration of CSV files by trial and person (dws_1/sub_1.csv), or of motionsense.npz."""
    return _window(source, MOVEMENT)


def read_motionsense_whole(source: Path) -> Decoded:
    """Read all twelve channels, which include how the phone lay."""
    return _window(source, slice(None))


def _window(source: Path, channels: slice) -> Decoded:
    trials = list(_read_arrays(source) if source.suffix == ".npz" else _read_tables(source))
    kept = [trial for trial in sorted(trials, key=lambda one: one[:3]) if trial[:3] != _DOUBLED]
    if not kept:
        raise InvalidInput(f"{source} holds no trials such as dws_1/sub_1.csv: give the folder A_DeviceMotion_data.")
    people = sorted({trial.person for trial in kept})
    activities = list(ACTIVITIES)
    parts: dict[str, list[tuple[NDArray[Any], int, int]]] = {"train": [], "test": []}
    for trial in kept:
        samples = trial.samples[channels]
        if samples.shape[1] >= LENGTH:
            windows = sliding_window_view(samples, LENGTH, axis=1)[:, ::STEP].transpose(1, 0, 2)
            split = "test" if trial.code > TEST_TRIALS else "train"
            parts[split].append((windows, activities.index(trial.activity), people.index(trial.person)))
    arrays, held = {}, {}
    for split, rows in parts.items():
        if not rows:
            raise InvalidInput(f"{source} holds no whole trial of the {split} set: give all trials of the data set.")
        counts = [len(windows) for windows, _, _ in rows]
        labels, held[split] = (np.repeat([row[place] for row in rows], counts) for place in (1, 2))
        arrays[split] = (np.concatenate([windows for windows, _, _ in rows]), labels)
    names = tuple(f"person_{person:02}" for person in people)
    return decoded_arrays(tuple(ACTIVITIES.values()), arrays, (names, held), kind="numbers")


def _read_arrays(source: Path) -> Iterator[Trial]:
    names = ("data", "offsets", "subject", "activity", "trial", "activities")
    data, offsets, people, activities, codes, words = read_arrays(source, names).values()
    if data.shape[0] != len(CHANNELS) or data.dtype != np.int16 or len(offsets) != len(people) + 1:
        raise InvalidInput(f"{source} holds {data.dtype} {data.shape} for {len(people)} trials: get the file again.")
    for number, (person, activity, code) in enumerate(zip(people, activities, codes, strict=True)):
        word = str(words[activity])
        yield Trial(int(person), word, int(code), data[:, offsets[number] : offsets[number + 1]])


def _read_tables(source: Path) -> Iterator[Trial]:
    found = {name: match for name in list_files(source) if (match := _TRIAL.search(name))}
    for name, content in read_files(source, found.keys()):
        activity, code, person = found[name].groups()
        if activity not in ACTIVITIES:
            raise InvalidInput(f"{source / name} is of no known activity: choose from {', '.join(ACTIVITIES)}.")
        yield Trial(int(person), activity, int(code), _read_table(content, f"{source / name}"))


def _read_table(content: bytes, place: str) -> NDArray[np.int16]:
    """Return a CSV file's channels in their steps, (channels, moments)."""
    head, _, body = content.partition(b"\n")
    columns = [column.strip().strip('"') for column in head.decode(errors="replace").split(",")]
    missing = [channel for channel in CHANNELS if channel not in columns]
    if missing:
        raise InvalidInput(f"{place} has no column {missing[0]}: give the files of A_DeviceMotion_data as they are.")
    try:
        positions = [columns.index(channel) for channel in CHANNELS]
        values = np.loadtxt(io.BytesIO(body), delimiter=",", usecols=positions, ndmin=2)
    except ValueError as error:
        raise InvalidInput(f"{place} is damaged ({error}): get it again.") from error
    steps = np.round(values * np.array(list(CHANNELS.values())))
    if not (np.abs(steps) < 2**15).all():  # not true of NaN either
        raise InvalidInput(f"{place} has values that no phone measures: get it again.")
    return np.ascontiguousarray(steps.T.astype(np.int16))
