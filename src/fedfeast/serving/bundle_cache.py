"""A run's networks as files, each built when it is first asked for and kept: what a model server hands out."""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.runs import Run
from fedfeast.serving.exporting import Exporter, ExportOptions
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.latency import Latency, LatencyMeter
from fedfeast.whole_files import whole_folder


class GoneRun(InvalidInput):
    """The run's folder was deleted or moved away."""


class BundleCache:
    """Bundles of a run in its folder ``served``, by weights and options; safe to share between threads."""

    def __init__(self, run: Run | Path | str, options: ExportOptions | None = None) -> None:
        options = options or ExportOptions()
        self._extractor = Extractor(run, options)
        self._exporter = Exporter(self._extractor, options)
        self._meter = LatencyMeter(self._extractor)
        self._lock = threading.Lock()
        weights = f"round-{self._extractor.run_facts['best_round']}-{self._extractor.run_facts['weights_sha256'][:8]}"
        kind = "pixels" if options.takes_pixels else "normalised"
        place = self._extractor.run.folder.path / "served" / weights
        rest = "-float16" * options.float16 + "-drawn-samples" * options.drawn_samples
        self.folder = place / f"{'-'.join(sorted(options.formats))}-opset{self._exporter.opset}-{kind}{rest}"

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The networks the run serves, least MACs first."""
        return self._extractor.points

    def accuracy(self, point: OperatingPoint) -> float | None:
        """Return a point's test accuracy from the run's evaluation, without building anything."""
        return self._extractor.recorded_accuracy(point)

    def value(self, point: OperatingPoint) -> float | None:
        """Return a point's scoring metric on the test set from the same evaluation."""
        return self._extractor.recorded_value(point)

    def interval(self, point: OperatingPoint) -> tuple[float, float] | None:
        """Return within which that value lies with 95 % certainty, where the test set is small."""
        return self._extractor.recorded_interval(point)

    def validated(self) -> Mapping[OperatingPoint, float]:
        """Return the points' scoring metric on the validation examples from the same evaluation; none where none is."""
        return self._extractor.validated()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What bundles say of the run and of the weights that they hold."""
        return self._extractor.run_facts

    @property
    def data_facts(self) -> DatasetFacts:
        """What is known of the run's data."""
        return self._extractor.run.recipe.data.facts

    def latency(self, point: OperatingPoint) -> Latency:
        """Return a point's latency on this device, measured once."""
        return self._meter.latency(point)

    def bundle(self, point: OperatingPoint) -> Path:
        """Return the folder of a point's bundle, building it on first use."""
        architecture = hashlib.sha256(repr(point.architecture).encode()).hexdigest()[:8]
        kept = self.folder / f"{point.macs}-macs-{architecture}"
        with self._lock:
            self._require_run()
            if not (kept / "manifest.json").is_file():
                if kept.is_dir() and any(kept.iterdir()):
                    raise InvalidInput(f"{kept} has no manifest: delete the folder, and it is built again.")
                try:
                    with whole_folder(kept) as folder:
                        self._exporter.write_bundle(self._extractor.extract(point, validate=False), folder)
                except FileNotFoundError:
                    self._require_run()  # it was deleted meanwhile
                    raise
        return kept

    def _require_run(self) -> None:
        """Refuse to build anything where the run's folder is gone: it would bring a part of the folder back."""
        if not (self._extractor.run.folder.path / "recipe.toml").is_file():
            raise GoneRun("the run's folder is gone: nothing can be built from it.")
