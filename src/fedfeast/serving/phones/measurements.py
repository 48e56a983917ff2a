"""Latencies that were measured elsewhere, by model and device, joined with a run's networks."""

import csv
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.serving.choice import Limits, MeasuredOn
from fedfeast.serving.extraction import Extractor

COLUMNS = ("model", "device", "latency_ms")
HEADER = f"its first line must name the columns {', '.join(COLUMNS)}"


@dataclass(frozen=True)
class DeviceTimes:
    """What networks took on one device, least price first."""

    device: str
    file: Path
    milliseconds: Mapping[OperatingPoint, tuple[float, ...]]

    def __call__(self, point: OperatingPoint) -> float:
        """Return a network's median latency there; of one that was not measured, infinity."""
        return statistics.median(self.milliseconds[point]) if point in self.milliseconds else math.inf

    def latency(self, point: OperatingPoint) -> dict[str, Any]:
        """Return what manifests say of a network's latency there."""
        times = self.milliseconds[point]
        return {
            "median_ms": self(point),
            "fastest_ms": min(times),
            "repeats": len(times),
            "device": self.device,
            "measured_elsewhere": self.file.name,
        }

    def choose(self, limits: Limits) -> OperatingPoint:
        """Return the largest measured network within the limits."""
        assert limits.max_latency_ms is not None
        medians = {point: statistics.median(times) for point, times in self.milliseconds.items()}
        affordable = [point for point in medians if limits.admit(point.price, point.parameters)]
        within = [point for point in affordable if medians[point] <= limits.max_latency_ms]
        if within:
            return within[-1]
        if not affordable:
            raise InvalidInput(
                f"none of the {len(medians)} models that {self.file} has of {self.device} fits {limits}."
            )
        fastest = min(map(self, affordable))
        raise InvalidInput(
            f"no model takes at most {limits.max_latency_ms:g} ms on {self.device}: the fastest that {self.file} has "
            f"takes {fastest:.3g} ms."
        )


def read_measurements(file: Path | str, points: Sequence[OperatingPoint]) -> dict[str, DeviceTimes]:
    """Read a CSV file of a run's networks: by device, in the file's order, what each network took there."""
    file, known = Path(file), _names_of(points)
    found: dict[str, dict[OperatingPoint, list[float]]] = {}
    for line, row in _rows(file):
        place = f"{file}, line {line}"
        name, device = (row["model"] or "").strip(), (row["device"] or "").strip()
        meant = known.get(_plain_name(name), [])
        if len(meant) != 1:
            what = "no model" if not meant else f"{len(meant)} models"
            least, greatest = points[0].name, points[-1].name
            raise InvalidInput(
                f"{place}: the run has {what} {name!r}: give a name, {least} to {greatest}, or its MACs."
            )
        if not device:
            raise InvalidInput(f"{place}: the device is missing: name it.")
        found.setdefault(device, {}).setdefault(meant[0], []).append(_milliseconds(place, row["latency_ms"] or ""))
    if not found:
        raise InvalidInput(f"{file} has no measurements: {HEADER}, and every other one a model's time.")
    return {
        device: DeviceTimes(device, file, {point: tuple(times[point]) for point in points if point in times})
        for device, times in found.items()
    }


def device_times(points: Sequence[OperatingPoint], measured_on: MeasuredOn) -> DeviceTimes:
    """Return the times of one device of a file."""
    devices = read_measurements(measured_on.file, points)
    if measured_on.device is None and len(devices) == 1:
        return next(iter(devices.values()))
    if measured_on.device not in devices:
        named = "no --device was given" if measured_on.device is None else f"there is no {measured_on.device!r}"
        raise InvalidInput(f"{measured_on.file} has {', '.join(devices)}, and {named}: choose one of them.")
    return devices[measured_on.device]


def join_measurements(extractor: Extractor, file: Path | str, max_latency_ms: float | None = None) -> dict[str, Any]:
    """Return every device's measured networks with their recorded values and, within a limit, what each gets."""
    extractor.require_curve()
    devices = []
    for times in read_measurements(file, extractor.points).values():
        rows = [
            {
                "name": point.name,
                "macs": point.macs,
                **({} if point.listed_price is None else {"price": point.listed_price}),
                "parameters": point.parameters,
                "value": extractor.recorded_value(point),
                **{key: times.latency(point)[key] for key in ("median_ms", "fastest_ms", "repeats")},
            }
            for point in times.milliseconds
        ]
        devices.append({"device": times.device, "points": rows, **_choice(times, max_latency_ms)})
    return {
        "run": extractor.run_facts,
        "metric": extractor.run.metric.facts(),
        "measured": Path(file).name,
        **({} if max_latency_ms is None else {"max_latency_ms": max_latency_ms}),
        "devices": devices,
    }


def _choice(times: DeviceTimes, max_latency_ms: float | None) -> dict[str, Any]:
    if max_latency_ms is None:
        return {}
    try:
        return {"chosen": times.choose(Limits(max_latency_ms=max_latency_ms)).name}
    except InvalidInput:
        return {"chosen": None}  # another device may have one


def _rows(file: Path) -> list[tuple[int, dict[str, str | None]]]:
    """Return the file's rows, each with the number of its line."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
        reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
        if missing:
            raise InvalidInput(f"{file} has no column {missing[0]}: {HEADER}.")
        return [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise InvalidInput(f"--measured {file} cannot be read ({error.strerror}): give a CSV file.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{file} is no CSV file in UTF-8 ({error}): {HEADER}.") from error


def _names_of(points: Sequence[OperatingPoint]) -> dict[str, list[OperatingPoint]]:
    names: dict[str, list[OperatingPoint]] = {}
    for point in points:
        for name in dict.fromkeys((point.name, str(point.macs))):
            names.setdefault(name, []).append(point)
    return names


def _plain_name(name: str) -> str:
    """Return a model's name or MACs out of what a ladder's folder (03-545.9k) or the server (545920-7e9f2c08) says."""
    return re.sub(r"-[0-9a-f]{8}$", "", re.sub(r"^\d\d-", "", name))


def _milliseconds(place: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{place}: latency_ms is {text!r}: give a positive number of milliseconds.")
    return value
