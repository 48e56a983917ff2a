"""Folders of recordings by speaker, to a network for every device that knows speakers it never heard.

python examples/speech.py                        some seconds, on tones made up in the published form
python examples/speech.py RECORDINGS [FOLDER]    e.g. AudioMNIST's folder data, SPEAKER/DIGIT_SPEAKER_TAKE.wav
"""

import sys
import tempfile
import wave
from pathlib import Path

import numpy as np

import fedfeast
from fedfeast.data.reading.natural.audiomnist import read_wave, spectrogram, to_16_khz


def make_up(folder: Path, speakers: int = 20, digits: int = 5, takes: int = 4) -> None:
    """Write tones: a digit is two pitches one after the other, a speaker has a voice and hesitates."""
    generator = np.random.default_rng(0)
    for speaker in range(1, speakers + 1):
        (folder / f"{speaker:02}").mkdir(parents=True)
        for digit, take in np.ndindex(digits, takes):
            hertz = np.repeat([400 + 180 * digit, 1300 - 150 * digit], 6000) * generator.normal(1, 0.08)
            sound = np.sin(np.cumsum(2 * np.pi * hertz / 48_000)) + 0.2 * generator.normal(size=len(hertz))
            samples = np.pad(np.round(3000 * sound), (int(generator.integers(9000)), 0)).astype("<i2")
            with wave.open(str(folder / f"{speaker:02}" / f"{digit}_{speaker:02}_{take}.wav"), "wb") as recording:
                recording.setparams((1, 2, 48_000, 0, "NONE", ""))
                recording.writeframes(samples.tobytes())


def prepare(recordings: Path, folder: Path) -> None:
    """Turn recordings into the data set "spoken": spectrograms, digits, and who speaks."""
    files = sorted(recordings.glob("*/*.wav"))
    images = [spectrogram(to_16_khz(read_wave(file.read_bytes(), str(file)))) for file in files]
    np.savez(
        folder / "spoken.npz",
        inputs=np.stack(images)[:, None],  # (recordings, 1, bands, moments)
        labels=np.array([int(file.name[0]) for file in files]),
        speaker=np.array([file.parent.name for file in files]),
    )
    options = fedfeast.PrepareOptions(clients="speaker", test_share=0.25)
    fedfeast.prepare_data("spoken", folder / "spoken.npz", folder, options)


def main(recordings: Path | None, folder: Path) -> None:
    """Prepare, train, and print the curve on speakers that never trained."""
    if recordings is None:
        recordings = folder / "recordings"
        make_up(recordings)
    prepare(recordings, folder)
    settings = {
        "data.name": "spoken",
        "data.folder": str(folder),
        "data.held_out_clients": 0.3,
        "data.server_clients": 0.2,
        "data.validation_examples": 40,
        "data.calibration_examples": 40,
        "training.rounds": 12,
        "training.local_epochs": 4,
        "evaluation.every_rounds": 6,
    }
    run = fedfeast.train("speech", folder / "run", settings)
    for name, curve in run.folder.test_sets().items():
        print(f"{name}:")
        for point in curve.points:
            print(f"{point.macs:>9,} MACs  {run.metric.show(point.value, point.standard_error)}")


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:3]]
    with tempfile.TemporaryDirectory() as temporary:
        main(given[0] if given else None, given[1] if len(given) > 1 else Path(temporary))
