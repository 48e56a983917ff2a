"""Small made-up data in the form in which the natural data sets are published: recordings, trials and plays."""

import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.natural.audiomnist import read_audiomnist
from fedfeast.data.reading.natural.motionsense import ACTIVITIES, CHANNELS, read_motionsense
from fedfeast.data.reading.natural.shakespeare import read_shakespeare
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.randomness import named_generator

READERS: dict[str, Callable[[Path], Decoded]] = {
    "speech": read_audiomnist,
    "motion": read_motionsense,
    "text": read_shakespeare,
}
WORDS = ["the", "king", "my", "lord", "shall", "speak", "of", "love", "and", "night", "to", "thee", "or", "die"]


def prepare(recipe: str, folder: Path) -> str:
    """Write and prepare a recipe's made-up data in a folder; return the data set's name."""
    writers: dict[str, Callable[[Path], None]]
    writers = {"speech": write_recordings, "motion": write_trials, "text": write_plays}
    writers[recipe](folder / "published" / recipe)
    decoded = READERS[recipe](folder / "published" / recipe)
    write_prepared(folder / f"made-up-{recipe}", decoded, {"normalisation": None, "source": {}})
    return f"made-up-{recipe}"


def write_recordings(folder: Path, speakers: Sequence[int] = tuple(range(1, 61)), digits: int = 4) -> None:
    """Write tones: a digit is a pitch, a speaker shifts it; two takes train and one tests."""
    for speaker in speakers:
        (folder / f"{speaker:02}").mkdir(parents=True)
        for digit in range(digits):
            for take in (0, 1, 40):
                hertz = (300 + 250 * digit) * (1 + 0.002 * speaker + 0.01 * take / 40)
                moments = np.arange(4800) / 48_000
                samples = np.round(8000 * np.sin(2 * np.pi * hertz * moments)).astype("<i2")
                with wave.open(str(folder / f"{speaker:02}" / f"{digit}_{speaker:02}_{take}.wav"), "wb") as recording:
                    recording.setparams((1, 2, 48_000, 0, "NONE", ""))
                    recording.writeframes(samples.tobytes())


def write_trials(folder: Path, people: int = 9) -> None:
    """Write waves: an activity is a frequency, a person its phase; one trial trains and one tests."""
    for number, activity in enumerate(ACTIVITIES):
        for trial, length in ((1, 320), (11, 192)):
            (folder / f"{activity}_{trial}").mkdir(parents=True)
            for person in range(1, people + 1):
                moments = np.arange(length)[:, None] * (1 + number) / 20 + person
                noise = named_generator(person, activity, trial).normal(scale=0.1, size=(length, len(CHANNELS)))
                values = 0.5 * np.sin(moments + np.arange(len(CHANNELS))) + noise.clip(-0.4, 0.4)
                rows = [f"{row}," + ",".join(f"{value:.4f}" for value in one) for row, one in enumerate(values)]
                text = "\n".join(["," + ",".join(CHANNELS), *rows, ""])
                (folder / f"{activity}_{trial}" / f"sub_{person}.csv").write_text(text)


def write_plays(folder: Path, roles: int = 24) -> None:
    """Write one play whose roles say words in any order; some say little."""
    lines = ["Chapter,Player,Line,Line ID,Stage Direction", "ACT I,,,,"]
    for role in range(roles):
        generator = named_generator(role, "role")
        lines.append(f",ROLE {'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[role]},,,")
        for _ in range(20 if role % 3 else 60):
            lines.append(f",,{' '.join(generator.choice(WORDS, 9).tolist())},1.1.1,")
    (folder / "csv").mkdir(parents=True)
    (folder / "csv" / "play.csv").write_text("\n".join([*lines, ""]))
