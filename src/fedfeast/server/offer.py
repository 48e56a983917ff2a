"""What a run offers at one moment: its variants with the weights of one round, and their files."""

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.machine import processor_and_cores
from fedfeast.serving.bundle import read_bundle
from fedfeast.serving.choice import Limits, best_point, better_point, choose_point
from fedfeast.serving.exporting import FILES
from fedfeast.serving.latency import Latency
from fedfeast.units import number_repeated
from fedfeast.version import VERSION

Kind = Literal["onnx", "safetensors"]
NAMES: dict[Kind, str] = {"onnx": FILES["onnx"], "safetensors": "weights.safetensors"}


class Bundles(Protocol):
    """Networks as files, each there when it is asked for: a run's (``BundleCache``) or a ladder's."""

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The networks, least price first."""

    @property
    def folder(self) -> Path:
        """Where files lie that were built for it; its name says how."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What bundles say of the run and of the weights that they hold."""

    @property
    def data_facts(self) -> DatasetFacts:
        """What is known of the examples that the networks take."""

    def accuracy(self, point: OperatingPoint) -> float | None:
        """Return a point's test accuracy, where it is known."""

    def value(self, point: OperatingPoint) -> float | None:
        """Return a point's scoring metric on the test set."""

    def interval(self, point: OperatingPoint) -> tuple[float, float] | None:
        """Return within which that value lies with 95 % certainty, where the test set is small."""

    def validated(self) -> Mapping[OperatingPoint, float]:
        """Return the points' scoring metric on the validation examples."""

    def latency(self, point: OperatingPoint) -> Latency:
        """Return a point's latency on this device, measured once."""

    def bundle(self, point: OperatingPoint) -> Path:
        """Return the folder of a point's bundle with its ONNX file."""


class NothingFits(InvalidInput):
    """No variant is within the limits; the least that any has is named."""

    def __init__(self, sentence: str, least_macs: int, least_parameters: int) -> None:
        super().__init__(sentence)
        self.least_macs, self.least_parameters = least_macs, least_parameters


class DamagedBundle(InvalidInput):
    """A kept bundle does not match its manifest."""


@dataclass(frozen=True)
class ModelFile:
    """A file of a variant that matched the hash in its bundle's manifest when it was last looked at."""

    path: Path
    sha256: str
    download_name: str
    stat: os.stat_result

    def is_unchanged(self) -> bool:
        """Return whether the file is still the one that was checked."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return (now.st_mtime_ns, now.st_size, now.st_ino) == (
            self.stat.st_mtime_ns,
            self.stat.st_size,
            self.stat.st_ino,
        )


class Offer:
    """A run's or a ladder's variants, least price first, with the weights of the best round."""

    def __init__(self, bundles: Bundles, run_name: str, recorded_latency: Path | None = None) -> None:
        self.bundles, self._run_name = bundles, run_name
        self.by_id = dict(zip(variant_ids(bundles), bundles.points, strict=True))
        self.latencies = {} if recorded_latency is None else read_latencies(recorded_latency, bundles)
        self._checked: dict[tuple[str, Kind], ModelFile] = {}
        self._measuring = threading.Lock()

    @property
    def data_facts(self) -> DatasetFacts:
        """What is known of the examples that the networks take."""
        return self.bundles.data_facts

    @property
    def round(self) -> int:
        """The round whose weights are on offer."""
        return int(self.bundles.facts["best_round"])

    @property
    def vector(self) -> str | None:
        """Which of a round's vectors is on offer, where the run chose: global, or average."""
        return self.bundles.facts.get("served_vector")

    def choose(self, limits: Limits, best_by: Mapping[str, float] | None = None) -> str:
        """Return the id of the largest variant within the limits, or by given merits the best one.

        Latencies not yet known are measured.
        """
        points = self.bundles.points
        try:
            with self._measuring_for(limits):
                if best_by is None:
                    chosen = choose_point(points, limits, self._latency_ms)
                else:
                    chosen = best_point(points, limits, self._by_point(best_by), self._latency_ms)
        except InvalidInput as error:
            least_macs, least_parameters = points[0].price, min(point.parameters for point in points)
            too_slow = any(limits.admit(point.price, point.parameters) for point in points)
            sentence = f"the least needs {least_macs} MACs, the smallest {least_parameters} parameters."
            told = str(error) if too_slow else f"no variant fits {limits}: {sentence}"
            raise NothingFits(told, least_macs, least_parameters) from error
        return next(name for name, point in self.by_id.items() if point == chosen)

    def better(self, chosen: str, limits: Limits, merits: Mapping[str, float]) -> str | None:
        """Return the id of the smaller variant within the limits that validates best, where that beats the chosen one.

        ``merits`` are those of the validated variants, by id.
        """
        points, chosen_point = self.bundles.points, self.by_id[chosen]
        with self._measuring_for(limits):
            found = better_point(points, chosen_point, limits, self._by_point(merits), self._latency_ms)
        return next((name for name, point in self.by_id.items() if point == found), None)

    def latency_ms(self, name: str) -> float:
        """Return a variant's latency on this machine, measured where it is not yet known."""
        return self._latency_ms(self.by_id[name])

    def kept_file(self, name: str, kind: Kind) -> ModelFile | None:
        """Return a file that was checked before and has not changed since; None where that would take time."""
        file = self._checked.get((name, kind))
        return file if file is not None and file.is_unchanged() else None

    def file(self, name: str, kind: Kind) -> ModelFile:
        """Return a variant's file, its bundle built on first use and checked."""
        point = self.by_id[name]
        folder, manifest = self.bundle(name)
        run = re.sub(r"[^A-Za-z0-9._-]+", "-", self._run_name).strip("-.") or "run"
        path = folder / NAMES[kind]
        file = ModelFile(path, manifest["sha256"][NAMES[kind]], f"{run}-{point.name}.{kind}", path.stat())
        self._checked[name, kind] = file
        return file

    def bundle(self, name: str) -> tuple[Path, dict[str, Any]]:
        """Return a variant's bundle, built on first use, and its manifest, all hashes checked."""
        folder = self.bundles.bundle(self.by_id[name])
        try:
            return folder, read_bundle(folder)
        except InvalidInput as error:
            reason = str(error).rpartition(":")[0]
            raise DamagedBundle(f"{reason}: delete the folder {folder.name}, and it is built again.") from error

    def _by_point(self, merits: Mapping[str, float]) -> dict[OperatingPoint, float]:
        return {self.by_id[name]: merit for name, merit in merits.items()}

    def _measuring_for(self, limits: Limits) -> AbstractContextManager[Any]:
        """Return what keeps two measurements apart, which would disturb each other."""
        return self._measuring if limits.max_latency_ms is not None else nullcontext()

    def _latency_ms(self, point: OperatingPoint) -> float:
        position = self.bundles.points.index(point)
        if position in self.latencies:
            return self.latencies[position]
        return self.bundles.latency(point).median_ms


def variant_id(bundles: Bundles, point: OperatingPoint) -> str:
    """Return a name that stands for these weights in this architecture, written by this version, and no other."""
    content = f"{bundles.facts['weights_sha256']} {point.architecture!r} {bundles.folder.name} {VERSION}"
    return f"{point.macs}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def variant_ids(bundles: Bundles) -> list[str]:
    """Return a name for every point; a network that is on offer twice has a number in its second one."""
    return number_repeated(variant_id(bundles, point) for point in bundles.points)


def read_latencies(path: Path, bundles: Bundles) -> dict[int, float]:
    """Return the medians of latency.json by position, where it was measured on this device for these points."""
    try:
        content = json.loads(path.read_text())
        rows = [(str(row["name"]), int(row["macs"]), float(row["median_ms"])) for row in content["points"]]
        measured_here = content["device"] == processor_and_cores()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    names = [(point.name, point.macs) for point in bundles.points]
    if not measured_here or [row[:2] for row in rows] != names:
        return {}
    return {position: row[2] for position, row in enumerate(rows)}
