"""A run's networks as files, each built when it is first asked for and kept: what a model server hands out."""

import hashlib
import threading
from pathlib import Path

from fedfeast.federation import OperatingPoint
from fedfeast.runs import Run
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import FILES, Exporter, ExportOptions, Format
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.latency import LatencyMeter
from fedfeast.serving.whole_folder import whole_folder


class Shelf:
    """Bundles of a run in its folder ``served``, by weights and options; safe to share between threads."""

    def __init__(self, run: Run | Path | str, options: ExportOptions | None = None) -> None:
        options = options or ExportOptions()
        self._extractor = Extractor(run)
        self._exporter = Exporter(self._extractor, options)
        self._meter = LatencyMeter(self._extractor)
        self._lock = threading.Lock()
        weights = f"round-{self._extractor.run_facts['best_round']}-{self._extractor.run_facts['weights_sha256'][:8]}"
        kind = "pixels" if options.takes_pixels else "normalised"
        place = self._extractor.run.folder.path / "served" / weights
        self.folder = place / f"{'-'.join(sorted(options.formats))}-opset{options.opset}-{kind}"

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The networks the run serves, least MACs first."""
        return self._extractor.points

    def accuracy(self, point: OperatingPoint) -> float | None:
        """Return a point's test accuracy from the run's evaluation, without building anything."""
        return self._extractor.recorded_accuracy(point)

    def choose(self, limits: Limits, search: bool = False) -> OperatingPoint:
        """Return the largest affordable point; latencies are measured on this device, each once."""
        return self._extractor.choose(limits, search, self._meter)

    def bundle(self, point: OperatingPoint) -> Path:
        """Return the folder of a point's bundle, building it on first use."""
        architecture = hashlib.sha256(repr(point.architecture).encode()).hexdigest()[:8]
        kept = self.folder / f"{point.macs}-macs-{architecture}"
        with self._lock:
            if not (kept / "manifest.json").is_file():
                with whole_folder(kept) as folder:
                    self._exporter.write_bundle(self._extractor.extract(point, validate=False), folder)
        return kept

    def file(self, point: OperatingPoint, kind: Format = "onnx") -> Path:
        """Return a point's exported file; kind must be one of the shelf's formats."""
        return self.bundle(point) / FILES[kind]
