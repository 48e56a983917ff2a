import io
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.natural.audiomnist import read_audiomnist, read_wave, spectrogram, to_16_khz
from fedfeast.data.reading.prepared import open_prepared, write_prepared
from fedfeast.errors import InvalidInput

Write = Callable[[str, Path], Path]


def tone(hertz: float, seconds: float, loudness: float = 0.01) -> NDArray[np.int16]:
    moments = np.arange(int(48_000 * seconds)) / 48_000
    return np.round(32767 * loudness * np.sin(2 * np.pi * hertz * moments)).astype(np.int16)


def encoded(samples: NDArray[np.int16], rate: int = 48_000, channels: int = 1) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as recording:
        recording.setparams((channels, 2, rate, 0, "NONE", ""))
        recording.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def inputs_by_split(decoded: Decoded) -> dict[str, NDArray[np.uint8]]:
    arrays = {split: np.zeros((len(labels), 1, 32, 32), np.uint8) for split, labels in decoded.labels.items()}
    for split, first, block in decoded.inputs:
        arrays[split][first : first + len(block)] = block
    return arrays


def test_a_tone_keeps_its_pitch_its_loudness_and_its_place() -> None:
    image = spectrogram(to_16_khz(tone(1000, 0.5)))
    assert image.shape == (32, 32)
    assert not image[:, [0, 1, 2, 3, 28, 29, 30, 31]].any(), "silence around the middle half second"
    # 1,000 Hz is 1,000 mel; bands are 83.6 mel apart from 77.8 mel on.
    assert set(image[:, 10:22].argmax(axis=0)) == {10}
    softer = spectrogram(to_16_khz(tone(1000, 0.5, loudness=0.001)))
    assert np.abs(image[10, 10:22].astype(int) - softer[10, 10:22] - 60).max() <= 1, "20 dB in thirds"


def test_what_lies_above_the_new_rate_is_filtered_out() -> None:
    low, high = to_16_khz(tone(500, 0.1, 0.5)), to_16_khz(tone(15_500, 0.1, 0.5))
    assert len(low) == len(high) == 1600
    assert np.abs(low[50:-50]).max() > 16_000
    assert np.abs(high[50:-50]).max() < 100


def test_resampling_and_spectrum_follow_their_definition() -> None:
    samples = np.round(3000 * np.sin(np.arange(301) ** 1.5)).astype(np.int16)
    taps = np.array([np.sinc((k - 30) / 3) * np.i0(5 * np.sqrt(1 - ((k - 30) / 30) ** 2)) for k in range(61)])
    taps /= taps.sum()
    expected = [
        sum(taps[k] * samples[3 * m + 30 - k] for k in range(61) if 0 <= 3 * m + 30 - k < 301) for m in range(101)
    ]
    assert np.abs(to_16_khz(samples) - np.array(expected)).max() <= 0.5 + 1e-6
    longer = np.tile(samples, 60)  # more than a second at 16 kHz: the middle is kept
    assert np.array_equal(spectrogram(longer), spectrogram(longer[1030:17030]))


def test_speakers_are_clients_and_late_takes_the_test(tmp_path: Path, write_unpacked: Write) -> None:
    folder = write_unpacked("audiomnist", tmp_path)
    decoded = read_audiomnist(folder)
    assert decoded.client_names == ("speaker_01", "speaker_02")
    assert decoded.clients["train"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert decoded.labels["train"].tolist() == [0, 0, 7, 7, 0, 0, 7, 7]
    assert decoded.labels["test"].tolist() == [0, 7, 0, 7]
    images = inputs_by_split(decoded)
    recording = read_wave((folder / "data" / "02" / "7_02_40.wav").read_bytes(), "it")
    assert np.array_equal(images["test"][3, 0], spectrogram(to_16_khz(recording)))
    write_prepared(tmp_path / "kept", read_audiomnist(folder / "data"), {"normalisation": None})
    clients = open_prepared(tmp_path / "kept").clients
    assert clients is not None
    assert clients.names == decoded.client_names
    assert clients.test.tolist() == [0, 0, 1, 1]


def test_ready_made_arrays_give_the_same(tmp_path: Path, write_unpacked: Write) -> None:
    decoded = read_audiomnist(write_unpacked("audiomnist", tmp_path))
    images = inputs_by_split(decoded)
    np.savez_compressed(
        tmp_path / "audiomnist.npz",
        images=np.concatenate([images["train"], images["test"]])[:, 0],
        labels=np.concatenate([decoded.labels["train"], decoded.labels["test"]]).astype(np.uint8),
        speaker=1 + np.concatenate([decoded.clients["train"], decoded.clients["test"]]).astype(np.uint8),
        take=np.array([0] * 8 + [40] * 4, np.uint8),
    )
    again = read_audiomnist(tmp_path / "audiomnist.npz")
    assert again.facts == decoded.facts
    assert again.client_names == decoded.client_names
    for split, array in inputs_by_split(again).items():
        assert np.array_equal(array, images[split])


def test_what_is_no_such_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no recordings such as 01/0_01_0.wav"):
        read_audiomnist(tmp_path)
    with pytest.raises(InvalidInput, match=r"a.wav does not decode as a recording"):
        read_wave(b"RIFF", "a.wav")
    with pytest.raises(InvalidInput, match=r"a.wav has 16000 Hz, 1 channels, 16 bits and 6 bytes: give recordings of"):
        read_wave(encoded(np.zeros(3, np.int16), rate=16_000), "a.wav")
    with pytest.raises(InvalidInput, match="48000 Hz, 2 channels"):
        read_wave(encoded(np.zeros(4, np.int16), channels=2), "a.wav")
    with pytest.raises(InvalidInput, match="and 0 bytes"):
        read_wave(encoded(np.zeros(0, np.int16)), "a.wav")
