from pathlib import Path

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.bundle import extract_affordable
from fedfeast.serving.choice import Limits, MeasuredOn
from fedfeast.serving.exporting import export
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.phones.measurements import device_times, join_measurements, read_measurements

PHONES = """\
device, model, latency_ms, android
Pixel 8, 128.3k, 1.0, 16
Pixel 8, 545920, 3.5, 16
Pixel 8, 04-545.9k, 2.5, 16
Pixel 8, 545920-7e9f2c08, 3.0, 16
Pixel 8, 4974848, 9, 16
"old, slow", 128.3k, 8, 9
"old, slow", 1.154M, 40, 9
"""


@pytest.fixture
def phones(tmp_path: Path) -> Path:
    (tmp_path / "phones.csv").write_text(PHONES)
    return tmp_path / "phones.csv"


def test_models_by_name_macs_folder_and_id(extractor: Extractor, phones: Path) -> None:
    read = read_measurements(phones, extractor.points)
    assert list(read) == ["Pixel 8", "old, slow"]
    times = {point.macs: taken for point, taken in read["Pixel 8"].milliseconds.items()}
    assert times == {128_320: (1.0,), 545_920: (3.5, 2.5, 3.0), 4_974_848: (9.0,)}
    assert read["Pixel 8"].latency(extractor.points[3]) == {
        "median_ms": 3.0,
        "fastest_ms": 2.5,
        "repeats": 3,
        "device": "Pixel 8",
        "measured_elsewhere": "phones.csv",
    }


@pytest.mark.parametrize(
    ("limit", "device", "macs"),
    [(3.0, "Pixel 8", 545_920), (2.9, "Pixel 8", 128_320), (100, "Pixel 8", 4_974_848), (39, "old, slow", 128_320)],
)
def test_a_device_gets_the_largest_that_was_measured_within_its_limit(
    extractor: Extractor, phones: Path, limit: float, device: str, macs: int
) -> None:
    assert device_times(extractor.points, MeasuredOn(phones, device)).choose(Limits(max_latency_ms=limit)).macs == macs


def test_other_limits_hold_too(extractor: Extractor, phones: Path) -> None:
    times = device_times(extractor.points, MeasuredOn(phones, "Pixel 8"))
    assert times.choose(Limits(max_macs=2e5, max_latency_ms=100)).macs == 128_320
    sentence = r"none of the 3 models that .*phones.csv has of Pixel 8 fits 10 MACs and 100 ms"
    with pytest.raises(InvalidInput, match=sentence):
        times.choose(Limits(max_macs=10, max_latency_ms=100))
    with pytest.raises(InvalidInput, match=r"at most 0.5 ms on Pixel 8: the fastest that .*phones.csv has takes 1 ms"):
        times.choose(Limits(max_latency_ms=0.5))
    with pytest.raises(InvalidInput, match="no limit was given for them: say --max-latency"):
        Limits(max_macs=1e6, measured_on=MeasuredOn(phones))


def test_best_and_search(extractor: Extractor, phones: Path) -> None:
    limits = Limits(max_latency_ms=100, measured_on=MeasuredOn(phones, "Pixel 8"))
    values = extractor.validated()
    measured = [extractor.points[place] for place in (0, 3, 7)]
    best = max(measured, key=lambda point: (extractor.metric.merit(values[point]), -point.price))
    extracted, more = extract_affordable(extractor, limits, best=True)
    assert (extracted.point, more["chosen_by"], more["latency"]["device"]) == (best, "best", "Pixel 8")
    with pytest.raises(InvalidInput, match="--search finds networks that nobody has measured"):
        extract_affordable(extractor, limits, search=True)


def test_which_device(extractor: Extractor, phones: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has Pixel 8, old, slow, and no --device was given: choose one of them"):
        device_times(extractor.points, MeasuredOn(phones))
    with pytest.raises(InvalidInput, match="and there is no 'Pixel 9': choose one of them"):
        device_times(extractor.points, MeasuredOn(phones, "Pixel 9"))
    (tmp_path / "one.csv").write_text("model,device,latency_ms\n128.3k,mine,2\n")
    assert device_times(extractor.points, MeasuredOn(tmp_path / "one.csv")).device == "mine"


def test_the_export_says_where_it_was_measured(run: fedfeast.Run, phones: Path, tmp_path: Path) -> None:
    limits = Limits(max_latency_ms=5, measured_on=MeasuredOn(phones, "Pixel 8"))
    manifest = export(run, tmp_path / "bundle", limits)
    assert (manifest["macs"], manifest["latency"]["measured_elsewhere"]) == (545_920, "phones.csv")
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "| latency | 3 ms, median of 3 on Pixel 8 measured there |" in card


def test_devices_side_by_side(extractor: Extractor, phones: Path) -> None:
    joined = join_measurements(extractor, phones, max_latency_ms=5)
    assert [(one["device"], one["chosen"]) for one in joined["devices"]] == [("Pixel 8", "545.9k"), ("old, slow", None)]
    recorded = [extractor.recorded_value(extractor.points[place]) for place in (0, 3, 7)]
    assert [row["value"] for row in joined["devices"][0]["points"]] == recorded
    assert "chosen" not in join_measurements(extractor, phones)["devices"][0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"phones.csv has no column model: its first line must name the columns model, device, latency_ms"),
        ("model,device\n", r"phones.csv has no column latency_ms"),
        ("model,device,latency_ms\n", r"phones.csv has no measurements"),
        (
            "model,device,latency_ms\n128.3k,a,1\n9.9G,a,2\n",
            r"line 3: the run has no model '9.9G': give a name, 128.3k",
        ),
        ("model,device,latency_ms\n128.3k,,1\n", r"line 2: the device is missing"),
        ("model,device,latency_ms\n128.3k,a,fast\n", r"line 2: latency_ms is 'fast': give a positive number"),
        ("model,device,latency_ms\n128.3k,a,0\n", r"line 2: latency_ms is '0'"),
        ("model,device,latency_ms\n128.3k,a,nan\n", r"line 2: latency_ms is 'nan'"),
        ("model,device,latency_ms\n128.3k,a,-inf\n", r"line 2: latency_ms is '-inf'"),
        ("model,device,latency_ms\n128.3k,a\n", r"line 2: latency_ms is ''"),
        ('model,device,latency_ms\n"128.3k" x,a,1\n', r"phones.csv is no CSV file in UTF-8"),
    ],
)
def test_a_bad_row_is_one_sentence_with_its_line(
    extractor: Extractor, tmp_path: Path, content: str, sentence: str
) -> None:
    (tmp_path / "phones.csv").write_text(content)
    with pytest.raises(InvalidInput, match=sentence):
        read_measurements(tmp_path / "phones.csv", extractor.points)


def test_files_that_cannot_be_read(extractor: Extractor, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--measured .*nothing.csv cannot be read \(No such file"):
        read_measurements(tmp_path / "nothing.csv", extractor.points)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_measurements(tmp_path, extractor.points)
    (tmp_path / "latin.csv").write_bytes(b"model,device,latency_ms\n128.3k,\xff,1\n")
    with pytest.raises(InvalidInput, match="is no CSV file in UTF-8"):
        read_measurements(tmp_path / "latin.csv", extractor.points)
