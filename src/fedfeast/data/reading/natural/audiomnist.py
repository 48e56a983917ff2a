"""AudioMNIST: spoken digits by speaker, each recording as a log-mel spectrogram of 32 bands and 32 moments."""

import io
import re
import wave
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.sources import list_files, read_arrays, read_files
from fedfeast.errors import InvalidInput

DIGITS = tuple(map(str, range(10)))
TEST_TAKES = 40  # takes from this one on are the test set
RATE = 48_000  # of the recordings; spectrograms are made at a third of it
SAMPLES, BANDS, FRAMES, FRAME_LENGTH, HOP = 16_000, 32, 32, 1024, 500  # one second at 16 kHz
_RECORDING = re.compile(r"(?:^|/)([0-9])_([0-9]{2})_([0-9]{1,2})\.wav$")  # digit, speaker, take


def read_audiomnist(source: Path) -> Decoded:
    """Read the recordings by speaker (01/0_01_0.wav), or audiomnist.npz; the last ten takes of a digit are the test."""
    if source.suffix == ".npz":
        arrays = read_arrays(source, ("images", "labels", "speaker", "take"))
        return _split(arrays["images"][:, None], arrays["labels"], arrays["speaker"], arrays["take"])
    found = {name: match for name in list_files(source) if (match := _RECORDING.search(name))}
    if not found:
        raise InvalidInput(f"{source} holds no recordings such as 01/0_01_0.wav: give the folder data of AudioMNIST.")
    numbers = np.array([[int(match[group]) for group in (2, 1, 3)] for match in found.values()])
    order = np.lexsort(numbers.T[::-1])  # by speaker, then digit, then take
    names, (speakers, digits, takes) = np.array(list(found))[order], numbers[order].T
    clients, held = np.unique(speakers, return_inverse=True)
    chosen = _splits_of(takes)
    places = {
        str(names[one]): (split, position)
        for split, members in chosen.items()
        for position, one in enumerate(np.flatnonzero(members))
    }
    return Decoded(
        DIGITS,
        1,
        BANDS,
        {split: digits[members] for split, members in chosen.items()},
        _decode(source, places),
        client_names=_names_of(clients),
        clients={split: held[members] for split, members in chosen.items()},
    )


def _decode(source: Path, places: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, int, NDArray[Any]]]:
    for name, content in read_files(source, places.keys()):
        split, position = places[name]
        yield split, position, spectrogram(to_16_khz(read_wave(content, f"{source / name}")))[None, None]


def _split(images: NDArray[Any], labels: NDArray[Any], speakers: NDArray[Any], takes: NDArray[Any]) -> Decoded:
    clients, held = np.unique(speakers, return_inverse=True)
    chosen = _splits_of(takes)
    return decoded_arrays(
        DIGITS,
        {split: (images[members], labels[members]) for split, members in chosen.items()},
        (_names_of(clients), {split: held[members] for split, members in chosen.items()}),
    )


def _splits_of(takes: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    return {"train": takes < TEST_TAKES, "test": takes >= TEST_TAKES}


def _names_of(speakers: NDArray[Any]) -> tuple[str, ...]:
    return tuple(f"speaker_{speaker:02}" for speaker in speakers.tolist())


def read_wave(content: bytes, place: str) -> NDArray[np.int16]:
    """Return the samples of a mono recording of 16 bits at 48 kHz."""
    try:
        with wave.open(io.BytesIO(content)) as recording:
            form = (recording.getframerate(), recording.getnchannels(), 8 * recording.getsampwidth())
            samples = recording.readframes(recording.getnframes())
    except (wave.Error, EOFError) as error:
        raise InvalidInput(f"{place} does not decode as a recording ({error}): replace it.") from error
    if form != (RATE, 1, 16) or not samples:
        raise InvalidInput(
            f"{place} has {form[0]} Hz, {form[1]} channels, {form[2]} bits and {len(samples)} bytes: "
            f"give recordings of {RATE} Hz, 1 channel and 16 bits."
        )
    return np.frombuffer(samples, "<i2").astype(np.int16)


def to_16_khz(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return every third sample of a recording after a low-pass filter of 61 taps."""
    padded = np.pad(samples / 32768, 30)
    filtered = sliding_window_view(padded, 61)[::3] @ _low_pass()  # the filter is symmetric
    return np.clip(np.round(filtered * 32768), -32768, 32767).astype(np.int16)


def spectrogram(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Return the loudness (bands, frames) of the middle second at 16 kHz, in thirds of a decibel above -70."""
    excess = max(len(samples) - SAMPLES, 0) // 2
    middle = samples[excess : excess + SAMPLES]
    margin = (HOP * (FRAMES - 1) + FRAME_LENGTH - SAMPLES) // 2
    sound = np.zeros(SAMPLES + 2 * margin)
    start = margin + (SAMPLES - len(middle)) // 2
    sound[start : start + len(middle)] = middle / 32768
    window, filters = _mel_filters()
    frames = sliding_window_view(sound, FRAME_LENGTH)[::HOP] * window
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2  # (frames, frequencies)
    decibel = 10 * np.log10(filters @ power.T + 1e-10)
    levels: NDArray[np.float64] = np.round(3 * (decibel + 70))
    return levels.clip(0, 255).astype(np.uint8)


@cache
def _low_pass() -> NDArray[np.float64]:
    """Return a filter at a third of the highest frequency, Kaiser window of 5, that leaves zero frequency alone."""
    taps = np.sinc((np.arange(61) - 30) / 3) * np.kaiser(61, 5.0)
    return np.asarray(taps / taps.sum())


@cache
def _mel_filters() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Hann window of a frame, and the triangles (bands, frequencies) equally spaced in mel."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME_LENGTH) / FRAME_LENGTH)
    frequencies = np.arange(FRAME_LENGTH // 2 + 1) * (SAMPLES / FRAME_LENGTH)
    least, most = (2595 * np.log10(1 + hertz / 700) for hertz in (50, 8000))
    corners = 700 * (10 ** (np.linspace(least, most, BANDS + 2) / 2595) - 1)
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return window, np.maximum(0, np.minimum(rising, falling))
