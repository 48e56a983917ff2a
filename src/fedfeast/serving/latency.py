"""Measured latency: how long one inference takes on this device."""

import statistics
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedfeast.federation import OperatingPoint
from fedfeast.machine import processor_and_cores, usable_cores
from fedfeast.runs import Run
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.onnx.graph import build_onnx, default_opset
from fedfeast.serving.onnx.packages import import_onnxruntime
from fedfeast.serving.onnx.session import Session
from fedfeast.stopwatch import Repeats, time_calls
from fedfeast.whole_files import write_json

WARM_UPS, REPEATS = 5, 30


@dataclass(frozen=True)
class Latency:
    """One inference of one example by onnxruntime, warmed up."""

    median_ms: float
    fastest_ms: float
    repeats: int
    threads: int
    device: str
    onnxruntime: str


def measure_latency(model: Model, threads: int | None = None, repeats: int = REPEATS) -> Latency:
    """Return the median time of one example, raw inputs in, outputs out."""
    times = time_served(model, threads, repeats)
    threads, version = threads or usable_cores(), str(import_onnxruntime().__version__)
    return Latency(statistics.median(times), min(times), repeats, threads, processor_and_cores(), version)


def time_served(model: Model, threads: int | None = None, repeats: int = REPEATS) -> list[float]:
    """Return the milliseconds of one example again and again, by onnxruntime on every usable core unless told."""
    return time_calls(served_call(model, threads), Repeats(repeats, warm_ups=WARM_UPS))


def served_call(model: Model, threads: int | None = None) -> Callable[[], object]:
    """Return what predicts one example by onnxruntime, on every usable core unless told."""
    session = Session(build_onnx(model, default_opset(model), takes_pixels=True).SerializeToString(), threads)
    grey = 128 if model.input_dtype == torch.uint8 else 0
    example = torch.full((1, *model.input_shape), grey, dtype=model.input_dtype)
    return lambda: session(example)


class LatencyMeter:
    """Measures a run's networks, each shape once; the weights count for nothing, so no data are needed."""

    def __init__(self, extractor: Extractor, threads: int | None = None, repeats: int = REPEATS) -> None:
        self._extractor, self._threads, self._repeats = extractor, threads, repeats
        self._measured: dict[Hashable, Latency] = {}

    def latency(self, point: OperatingPoint) -> Latency:
        """Return a point's latency on this device."""
        shape = point.architecture
        if shape not in self._measured:
            model = self._extractor.uncalibrated(point)
            self._measured[shape] = measure_latency(model, self._threads, self._repeats)
        return self._measured[shape]

    def __call__(self, point: OperatingPoint) -> float:
        """Return a point's median latency in milliseconds."""
        return self.latency(point).median_ms


def latency(
    run: Extractor | Run | Path | str,
    threads: int | None = None,
    repeats: int = REPEATS,
    on_point: Callable[[OperatingPoint], None] = lambda point: None,
) -> dict[str, Any]:
    """Measure every served network of a run on this device; its folder keeps latency.json and the picture.

    Needs a measured curve and the [export] extra; ``on_point`` is told of each network that was measured.
    """
    from fedfeast.presentation.pictures import draw_latency

    extractor = run if isinstance(run, Extractor) else Extractor(run)
    folder = extractor.run.folder.path
    extractor.require_curve()
    measured = measure_run(extractor, threads, repeats, on_point)
    write_json(folder / "latency.json", measured)
    for suffix in (".png", ".svg"):
        draw_latency(measured, folder / f"latency{suffix}")
    return measured


def measure_run(
    extractor: Extractor,
    threads: int | None = None,
    repeats: int = REPEATS,
    on_point: Callable[[OperatingPoint], None] = lambda point: None,
) -> dict[str, Any]:
    """Return every point's cost, recorded accuracy and measured latency, and where they were measured."""
    meter = LatencyMeter(extractor, threads, repeats)
    rows, last = [], None
    for point in extractor.points:
        last = meter.latency(point)
        accuracy = extractor.recorded_accuracy(point)
        rows.append(
            {
                "name": point.name,
                "macs": point.macs,
                **({} if point.listed_price is None else {"price": point.listed_price}),
                "parameters": point.parameters,
                "accuracy": accuracy,
                "value": extractor.recorded_value(point),
                "interval": extractor.recorded_interval(point),
                "median_ms": last.median_ms,
                "fastest_ms": last.fastest_ms,
            }
        )
        on_point(point)
    assert last is not None
    where = {"device": last.device, "onnxruntime": last.onnxruntime, "threads": last.threads, "repeats": repeats}
    return {"run": extractor.run_facts, **where, "metric": extractor.run.metric.facts(), "points": rows}
