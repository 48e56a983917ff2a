import json
from pathlib import Path

import fedfeast
from fedfeast.federation import OperatingPoint
from fedfeast.machine import processor_and_cores
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.latency import LatencyMeter, measure_latency, measure_run


def test_one_image_is_measured(extractor: Extractor) -> None:
    latency = measure_latency(extractor.uncalibrated(extractor.points[0]), threads=1, repeats=5)
    assert 0 < latency.fastest_ms <= latency.median_ms < 1000
    assert (latency.repeats, latency.threads, latency.device) == (5, 1, processor_and_cores())


def test_extract_by_measured_latency(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = fedfeast.extract(run, tmp_path / "bundle", Limits(max_latency_ms=10_000))
    assert manifest["macs"] == 4_974_848
    assert 0 < manifest["latency"]["median_ms"] <= 10_000
    assert "median of 30" in (tmp_path / "bundle" / "README.md").read_text()


def test_every_point_of_a_run(extractor: Extractor) -> None:
    seen: list[OperatingPoint] = []
    measured = measure_run(extractor, threads=1, repeats=3, on_point=seen.append)
    assert tuple(seen) == extractor.points
    assert [row["macs"] for row in measured["points"]] == [point.macs for point in extractor.points]
    assert [row["accuracy"] for row in measured["points"]] == [one.accuracy for one in extractor.run.curve.points]
    assert [row["value"] for row in measured["points"]] == [one.value for one in extractor.run.curve.points]
    assert measured["metric"]["name"] == "accuracy"
    assert all(row["median_ms"] > 0 for row in measured["points"])
    assert (measured["threads"], measured["repeats"]) == (1, 3)


def test_a_meter_measures_each_point_once(extractor: Extractor) -> None:
    meter = LatencyMeter(extractor, threads=1, repeats=2)
    assert meter.latency(extractor.points[0]) is meter.latency(extractor.points[0])
    assert meter(extractor.points[0]) == meter.latency(extractor.points[0]).median_ms


def test_from_python_a_run_keeps_what_was_measured(run: fedfeast.Run) -> None:
    measured = fedfeast.latency(run, threads=1, repeats=2)
    assert json.loads((run.folder.path / "latency.json").read_text()) == json.loads(json.dumps(measured))
    assert (run.folder.path / "latency.png").stat().st_size > 0


def test_measure_from_python_is_the_commands_own() -> None:
    measured = fedfeast.measure("digits", target_milliseconds=1000, threads=1, num_variants=2)
    assert [one["macs"] for one in measured["variants"]] == [128_320, 4_974_848]
    assert measured["suggestion"]["budget_macs"] == 4_974_848
