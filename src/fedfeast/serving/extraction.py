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
from fedfeast.data.tasks import CLASSIFICATION, Metric, Task, task_named
from fedfeast.evaluation import Evaluator, recalibrate
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks.built import Member
from fedfeast.networks.normalisation import Statistics
from fedfeast.planning.outline import outline
from fedfeast.runs import Run
from fedfeast.serving.accuracy import measure_figures
from fedfeast.serving.choice import Limits, MeasureLatency, choose_point
from fedfeast.serving.elastic import least_possible, search_point
from fedfeast.serving.families.registry import AnyFamily, family_of, uncalibrated
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.support import TrainedSupport
from fedfeast.version import VERSION

# Choice: so many test examples go into a bundle with their logits, for verify to run again.
NUM_SAMPLES = 16
RECORDED, MEASURED = "the run's evaluation", "measured at extraction"
MASKED = "weights that are kept; the others are zeros, which the files hold and which runtimes compute with"


@dataclass(frozen=True, eq=False)
class Extracted:
    """A network ready to leave: inputs as the data have them in, outputs out, and what is known of it."""

    point: OperatingPoint
    model: Model  # on the CPU, in float32
    family: AnyFamily
    tensors: Mapping[str, Tensor]  # what was learnt, and the served statistics, by name
    facts: Mapping[str, Any]  # of the manifest
    samples: Examples
    curve: tuple[Mapping[str, Any], ...]  # all measured points of the run; none where it was not evaluated


class Extractor:
    """Takes networks out of one run's best weights; checkpoint and data are loaded once for all of them."""

    def __init__(self, run: Run | Path | str) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self._best = self.run.best()
        self.run.folder.kept_builder.refuse_other(self.run.recipe)
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
        table = self._table(point, federation.test.normalisation, len(statistics))
        model = self.family.model(deployed, statistics, table)
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
            **self._measured(point, model, validate),
            "calibration": self._calibration_facts if by_clients is None else _given(by_clients),
            **self._names,
            "network": table,
        }
        tensors = self.family.tensors(deployed, statistics)
        return Extracted(point, model, self.family, tensors, facts, self._samples, self._recorded("curve"))

    def uncalibrated(self, point: OperatingPoint) -> Model:
        """Return a point's network with made-up statistics: as fast as the real one, and no data are needed."""
        return uncalibrated(self._deploy(self._best.flat, point))

    @property
    def task(self) -> Task:
        """What the networks have learnt."""
        return task_named(self.run.recipe.data.facts.task)

    @property
    def metric(self) -> Metric:
        """The metric of the run's curve."""
        chosen = self.run.recipe.evaluation.metric
        return self.task.metric if chosen is None else self.task.metric_named(chosen)

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
        measured = self._recorded_point(point, split)
        return None if measured is None else measured.get("accuracy")

    def recorded_value(self, point: OperatingPoint) -> float | None:
        """Return a point's scoring metric on the test set from the same evaluation; None where it has none."""
        measured = self._recorded_point(point, "test")
        return None if measured is None else measured.get("value", measured.get("accuracy"))

    def _recorded_point(self, point: OperatingPoint, split: str) -> Mapping[str, Any] | None:
        for one in self._recorded("curve" if split == "test" else f"{split}_curve"):
            if (one["name"], one["macs"], one["parameters"]) == (point.name, point.macs, point.parameters):
                return one
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

    def _measured(self, point: OperatingPoint, model: Model, validate: bool) -> dict[str, Any]:
        """Return the figures on both sets; of a classification the accuracies by their own names too."""
        federation = self.run.federation
        measured: dict[str, dict[str, float] | None] = {}
        sources: dict[str, str | None] = {}
        for split, evaluator in (("test", federation.test), ("validation", federation.validation)):
            row = self._recorded_point(point, split) if point in self.points else None
            figures = (
                None if row is None else dict(row["figures"] if "figures" in row else {"accuracy": row["accuracy"]})
            )
            sources[split] = RECORDED if figures is not None else None
            if figures is None and (split == "test" or validate) and isinstance(evaluator, Evaluator):
                figures = measure_figures(model.to(federation.device), evaluator.test, self.task)
                sources[split] = MEASURED
            measured[split] = figures
        model.cpu()
        if self.task == CLASSIFICATION:
            accuracies = {split: None if one is None else one["accuracy"] for split, one in measured.items()}
            return {**{f"{split}_accuracy": one for split, one in accuracies.items()}, "accuracy_from": sources}
        figures_of = {f"{split}_figures": one for split, one in measured.items()}
        return {"task": self.task.name, "metric": self.metric.name, **figures_of, "figures_from": sources}

    def _table(self, point: OperatingPoint, normalisation: Normalisation | None, batch_norms: int) -> dict[str, Any]:
        facts = self.run.recipe.data.facts
        # Token ids may be kept in fewer bytes than networks take them in.
        dtype = torch.int64 if normalisation is None else self.test.inputs.dtype
        table = self.family.describe(self._method.network, point.architecture)
        table |= self.family.describe_input(facts.kind, facts.input_shape, dtype, batch_norms)
        if normalisation is not None:
            table |= {"mean": list(normalisation.mean), "deviation": list(normalisation.deviation)}
        return table

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
    def _names(self) -> dict[str, list[str]]:
        """Return what outputs stand for: classes, labels and targets, or the symbols of a text's vocabulary."""
        section = self.run.recipe.data
        prepared = data_folder(section.folder) / section.name
        if section.name not in EMBEDDED and is_prepared(prepared):
            names = list(read_description(prepared)["class_names"])
        else:
            names = [str(label) for label in range(section.facts.classes)]
        return {"vocabulary" if self.task.name == "next-token" else "class_names": names}


def _given(statistics: Statistics) -> dict[str, Any]:
    """Say that the statistics are the clients' own; the hash is of themselves."""
    return {"by": "clients", "sha256": _hash(*(part for both in statistics.values() for part in both))}


def _plain(architecture: Any) -> Any:
    if isinstance(architecture, Member):
        return architecture.values
    if is_dataclass(architecture) and not isinstance(architecture, type):
        return asdict(architecture)
    return str(architecture)


def _hash(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()
