"""Extraction: networks out of a trained run, recalibrated, with all that their manifests say of them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfeast.data import EMBEDDED, Examples, Normalisation
from fedfeast.data.reading.prepared import is_prepared, read_description
from fedfeast.data.reading.preparing import data_folder
from fedfeast.evaluation import Evaluator, recalibrate
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks.normalisation import Statistics
from fedfeast.planning.outline import outline
from fedfeast.runs import Run
from fedfeast.serving.accuracy import measure_accuracy
from fedfeast.serving.choice import Limits, MeasureLatency, choose_point
from fedfeast.serving.elastic import least_possible, search_point
from fedfeast.serving.families.registry import Family, family_of, state_dict_of, uncalibrated
from fedfeast.serving.families.standalone import Model, fill
from fedfeast.serving.support import TrainedSupport
from fedfeast.version import VERSION

# Choice: so many test examples go into a bundle with their logits, for verify to run again.
NUM_SAMPLES = 16
RECORDED, MEASURED = "the run's evaluation", "measured at extraction"
MASKED = "weights that are kept; the others are zeros, which the files hold and which runtimes compute with"


@dataclass(frozen=True, eq=False)
class Extracted:
    """A network ready to leave: raw pixels in, logits out, and what is known of it."""

    point: OperatingPoint
    model: Model  # on the CPU, in float32
    family: Family
    facts: Mapping[str, Any]  # of the manifest
    samples: Examples
    curve: tuple[Mapping[str, Any], ...]  # all measured points of the run; none where it was not evaluated


class Extractor:
    """Takes networks out of one run's best weights; checkpoint and data are loaded once for all of them."""

    def __init__(self, run: Run | Path | str) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self._best = self.run.best()
        self._built = outline(self.run.recipe)
        self._method = self._built.method
        self.family = family_of(self._method.network)
        self._planned = self._costed(self._method.operating_points())
        self.points = tuple(self._planned)  # with their cost under the run's weights, least MACs first

    def choose(self, limits: Limits, search: bool = False, measure: MeasureLatency | None = None) -> OperatingPoint:
        """Return the largest affordable point, or with ``search`` the fittest network that was never cached."""
        if search:
            return search_point(self._built, limits)
        return choose_point(self.points, limits, measure, hint=least_possible(self._built))

    def extract(self, point: OperatingPoint, validate: bool = True) -> Extracted:
        """Recalibrate a point; measure its accuracies where the run's evaluation has none, validation if wanted."""
        federation = self.run.federation
        deployed = self._deploy(self._flat, point)
        by_clients = self._given_statistics.get(point.name)
        statistics = by_clients
        if statistics is None:
            statistics = recalibrate(deployed, self.calibration, federation.test.normalisation)
        assert federation.test.normalisation is not None
        table = self._table(point, federation.test.normalisation)
        model = fill(self.family.build(table), table, state_dict_of(deployed, statistics))
        facts = {
            "fedfeast": VERSION,
            "torch": torch.__version__,
            "run": self.run_facts,
            "name": point.name,
            "architecture": _plain(point.architecture),
            "cached": point in self.points,
            "macs": point.macs,
            "parameters": point.parameters,
            "masked": self._masked(point),
            "untrained_share": self._support.untrained_share(point.architecture),
            **self._accuracies(point, model, validate),
            "calibration": self._calibration_facts if by_clients is None else _given(by_clients),
            "class_names": self._class_names,
            "network": table,
        }
        return Extracted(point, model, self.family, facts, self._samples, self._recorded("curve"))

    def uncalibrated(self, point: OperatingPoint) -> Model:
        """Return a point's network with made-up statistics: as fast as the real one, and no data are needed."""
        return uncalibrated(self._deploy(self._best.flat, point))

    @property
    def test(self) -> Examples:
        """The test set."""
        return self.run.federation.test.test

    @property
    def calibration(self) -> Examples:
        """The server-held calibration examples."""
        return self.run.federation.test.calibration

    @cached_property
    def run_facts(self) -> dict[str, Any]:
        """What bundles and ladders say of the run."""
        recipe = self.run.recipe
        return {
            "name": self.run.folder.path.resolve().name,
            "recipe": recipe.name,
            "method": recipe.method_name,
            "data": recipe.data.name,
            "seed": recipe.seed,
            "best_round": self._best.finished_rounds,
            "weights_sha256": _hash(self._best.flat),
        }

    def recorded_accuracy(self, point: OperatingPoint, split: str = "test") -> float | None:
        """Return a point's accuracy from the run's evaluation of these very weights; None where it has none."""
        for one in self._recorded("curve" if split == "test" else f"{split}_curve"):
            if (one["name"], one["macs"], one["parameters"]) == (point.name, point.macs, point.parameters):
                return float(one["accuracy"])
        return None

    def _costed(self, planned: Sequence[OperatingPoint]) -> dict[OperatingPoint, OperatingPoint]:
        """Return the method's own points by the same with the cost that the run's weights give them."""
        if not self._method.cost_follows_weights:
            return {point: point for point in planned}
        costs = [(int(row["macs"]), int(row["parameters"])) for row in self._recorded("curve")]
        if len(costs) != len(planned):
            deployed = (self._method.deploy(self._best.flat, point) for point in planned)
            costs = [(one.macs, one.parameters) for one in deployed]
        return {
            replace(point, macs=macs, parameters=parameters): point
            for point, (macs, parameters) in zip(planned, costs, strict=True)
        }

    def _deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        return self._method.deploy(flat, self._planned.get(point, point))

    def _masked(self, point: OperatingPoint) -> dict[str, Any] | None:
        """Say what a network costs whose zeros are not left out; None for one without a mask."""
        network, architecture = self._method.network, point.architecture
        dense = {"macs": network.macs(architecture), "parameters": network.parameters(architecture)}
        return {"counted": MASKED, "dense": dense} if dense["parameters"] != point.parameters else None

    def _recorded(self, key: str) -> tuple[Mapping[str, Any], ...]:
        if not self.run.folder.has_summary():
            return ()
        summary = self.run.summary
        return tuple(summary.get(key, ())) if summary.get("best_round") == self._best.finished_rounds else ()

    def _accuracies(self, point: OperatingPoint, model: Model, validate: bool) -> dict[str, Any]:
        federation, accuracies, sources = self.run.federation, {}, {}
        for split, evaluator in (("test", federation.test), ("validation", federation.validation)):
            accuracy = self.recorded_accuracy(point, split) if point in self.points else None
            sources[split] = RECORDED if accuracy is not None else None
            if accuracy is None and (split == "test" or validate) and isinstance(evaluator, Evaluator):
                accuracy = measure_accuracy(model.to(federation.device), evaluator.test)
                sources[split] = MEASURED
            accuracies[f"{split}_accuracy"] = accuracy
        model.cpu()
        return {**accuracies, "accuracy_from": sources}

    def _table(self, point: OperatingPoint, normalisation: Normalisation) -> dict[str, Any]:
        pixels = {"mean": list(normalisation.mean), "deviation": list(normalisation.deviation)}
        return {**self.family.describe(self._method.network, point.architecture), **pixels}

    @cached_property
    def _given_statistics(self) -> Mapping[str, Statistics]:
        """Those of the clients, by network, where they evaluated."""
        return self.run.statistics_by_clients(self._best)

    @cached_property
    def _flat(self) -> Tensor:
        return self._best.flat.to(self.run.federation.device)

    @cached_property
    def _support(self) -> TrainedSupport:
        return TrainedSupport(self._built)

    @cached_property
    def _samples(self) -> Examples:
        return self.test.select(torch.arange(min(NUM_SAMPLES, len(self.test)))).to(torch.device("cpu"))

    @cached_property
    def _calibration_facts(self) -> dict[str, Any]:
        return {"examples": len(self.calibration), "sha256": _hash(self.calibration.inputs, self.calibration.labels)}

    @cached_property
    def _class_names(self) -> list[str]:
        section = self.run.recipe.data
        prepared = data_folder(section.folder) / section.name
        if section.name not in EMBEDDED and is_prepared(prepared):
            return list(read_description(prepared)["class_names"])
        return [str(label) for label in range(section.facts.classes)]


def _given(statistics: Statistics) -> dict[str, Any]:
    """Say that the statistics are the clients' own; the hash is of themselves."""
    return {"by": "clients", "sha256": _hash(*(part for both in statistics.values() for part in both))}


def _plain(architecture: Any) -> Any:
    if is_dataclass(architecture) and not isinstance(architecture, type):
        return asdict(architecture)
    return str(architecture)


def _hash(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()
