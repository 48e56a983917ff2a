"""Extraction: networks out of a trained run, recalibrated, with all that their manifests say of them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import EMBEDDED, Examples, Normalisation
from fedfeast.data.reading.prepared import is_prepared, read_description
from fedfeast.data.reading.preparing import data_folder
from fedfeast.data.tasks import CLASSIFICATION, Metric, Task, task_named
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import CurvePoint, Evaluator
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks.built import Member
from fedfeast.networks.normalisation import Statistics
from fedfeast.planning.outline import outline
from fedfeast.presentation.round_reader import RoundReader
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_server
from fedfeast.runs import Run
from fedfeast.serving.accuracy import measure_figures
from fedfeast.serving.choice import Limits, MeasureLatency, best_point, better_point, choose_point
from fedfeast.serving.elastic import least_possible, search_point
from fedfeast.serving.families.registry import AnyFamily, family_of, uncalibrated
from fedfeast.serving.families.rounding import round_deployed, round_tensors
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.support import TrainedSupport
from fedfeast.version import VERSION

# Choice: so many test examples go into a bundle with their logits, for verify to run again.
NUM_SAMPLES = 16
RECORDED, MEASURED = "the run's evaluation", "measured at extraction"
MEASURED_ROUNDED = f"{MEASURED}, after rounding to float16"
BEFORE_ROUNDING = "before rounding to float16"
DRAWN = "inputs drawn at random with labels of zero, since there was no test set"
DRAWN_AS_ASKED = "inputs drawn at random with labels of zero, and no examples of the data"
MASKED = "weights that are kept; the others are zeros, which the files hold and which runtimes compute with"


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """What a bundle holds of a network."""

    float16: bool = False  # weights are rounded to half the bytes; the network computes in float32 from these
    drawn_samples: bool = False  # samples are drawn at random, so that no example of the data leaves


@dataclass(frozen=True, eq=False)
class Extracted:
    """A network ready to leave: inputs as the data have them in, outputs out, and what is known of it."""

    point: OperatingPoint
    model: Model  # on the CPU, in float32
    family: AnyFamily
    tensors: Mapping[str, Tensor]  # what was learnt, and the served statistics, by name, as they are written
    facts: Mapping[str, Any]  # of the manifest
    samples: Examples
    curve: tuple[Mapping[str, Any], ...]  # all measured points of the run; none where it was not evaluated


class Extractor:
    """Takes networks out of one run's best weights; checkpoint and data are loaded once for all of them."""

    def __init__(self, run: Run | Path | str, options: BundleOptions | None = None) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.options = options or BundleOptions()
        self._best = self.run.best()
        self.run.folder.kept_builder.refuse_other(self.run.recipe)
        self._built = outline(self.run.recipe)
        self._method = self._built.method
        self.run.folder.checkpoints.require_size(self._best.flat, self._method.network.layout.size)
        self._planned = self._costed(self._method.operating_points())
        # With their cost under the run's weights, least price first; without a test set those that clients measured.
        self.points = tuple(point for point in self._planned if self._measured_on is None or self._is_recorded(point))

    @cached_property
    def family(self) -> AnyFamily:
        """That of the networks as they are served, which may be another than the trained one's."""
        return family_of(self._method.deploy(self._best.flat, self._method.operating_points()[0]).network)

    def choose(
        self, limits: Limits, search: bool = False, measure: MeasureLatency | None = None, best: bool = False
    ) -> OperatingPoint:
        """Return the largest affordable point, with ``best`` that which validated best.

        With ``search`` it is the fittest network that was never cached.
        """
        if search:
            return search_point(self._built, limits)
        hint = least_possible(self._built)
        if best:
            return best_point(self.points, limits, self._merits(), measure, hint)
        return choose_point(self.points, limits, measure, hint)

    def better(
        self, point: OperatingPoint, limits: Limits, measure: MeasureLatency | None = None
    ) -> OperatingPoint | None:
        """Return the smaller network within the limits that validated best, where that is better than this one."""
        return better_point(self.points, point, limits, self._merits(), measure)

    def require_curve(self) -> None:
        """Refuse a run whose best round has no measured curve."""
        if any(self.recorded_value(point) is None for point in self.points):
            folder = self.run.folder.path
            raise InvalidInput(f"{folder} has no measured curve of its best round: run fedfeast evaluate {folder}.")

    def require_validated(self) -> None:
        """Refuse to go by validation figures of a run that has none of its best round's weights by size."""
        if not self.validated():
            folder = self.run.folder.path
            raise InvalidInput(
                f"--best goes by what every size comes to on the validation examples, and {folder} has no such figures "
                f"of its best round: run fedfeast evaluate {folder} when it has been trained, or leave --best out."
            )

    def extract(self, point: OperatingPoint, validate: bool = True) -> Extracted:
        """Recalibrate a point; measure its accuracies where the run's evaluation has none, validation if wanted."""
        normalisation = self.run.federation.preparation.normalisation
        self._refuse_unmeasured(point)
        deployed = self._deploy(self._flat, point)
        by_clients = self._given_statistics.get(point.name)
        statistics = by_clients
        if statistics is None and self.has_test:
            statistics = self.run.federation.test.recalibrate(deployed)
        statistics = statistics or {}  # networks without norm layers have none
        table = self._table(deployed, normalisation, len(statistics))
        model, tensors = self.family.model(deployed, statistics, table), self.family.tensors(deployed, statistics)
        rounding: dict[str, Any] = {}
        if self.options.float16:
            tensors, before = round_tensors(tensors), model
            model = self.family.model(*round_deployed(deployed, statistics), table)
            rounding = {"weights": "float16", "rounding_difference": self._difference_on_samples(before, model)}
        facts = {
            "fedfeast": VERSION,
            "torch": torch.__version__,
            "run": self.run_facts,
            "name": point.name,
            "architecture": _plain(point.architecture),
            "cached": point in self.points,
            "macs": point.macs,
            **({} if point.listed_price is None else {"price": point.listed_price}),
            "parameters": point.parameters,
            **rounding,
            "masked": _masked(deployed, point),
            "untrained_share": self._support.untrained_share(point.architecture),
            **self._measured(point, model, validate),
            "calibration": self._calibration_facts if by_clients is None else _given(by_clients),
            **self._samples_from,
            **self._names,
            "network": table,
        }
        return Extracted(point, model, self.family, tensors, facts, self._samples, self._recorded("curve"))

    def uncalibrated(self, point: OperatingPoint) -> Model:
        """Return a point's network with made-up statistics: as fast as the real one, and no data are needed."""
        return uncalibrated(self._deploy(self._best.flat, point), self.run.recipe.data.facts)

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
    def has_test(self) -> bool:
        """Whether there is a test set here."""
        return bool(self.run.federation.tests)

    @property
    def checked(self) -> Examples:
        """Examples that a network's outputs are compared on here: those of the test set, or drawn ones."""
        return self.test if self.has_test else self._samples

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
            **({"served_vector": self._best.vector} if build_server(recipe, self._method).average else {}),
            "weights_sha256": _hash(self._best.flat),
        }

    def recorded_accuracy(self, point: OperatingPoint, split: str = "test") -> float | None:
        """Return a point's accuracy from the run's evaluation of these very weights; None where it has none."""
        measured = self._recorded_point(point, split)
        return None if measured is None else measured.get("accuracy")

    def recorded_value(self, point: OperatingPoint) -> float | None:
        """Return a point's scoring metric on the test set from the same evaluation; None where it has none."""
        measured = self._recorded_point(point, "test")
        return None if measured is None else _value(measured)

    def validated(self) -> dict[OperatingPoint, float]:
        """Return what points came to on the validation examples, from the same evaluation.

        Before there is one it is what was validated when the served round ended, of some points or none.
        """
        rows = {_key(row): row for row in self._recorded("validation_curve")}
        found = {point: rows.get((point.name, point.macs, point.parameters)) for point in self.points}
        validated = {point: _value(row) for point, row in found.items() if row is not None}
        return validated or self._validated_while_training

    @cached_property
    def _validated_while_training(self) -> dict[OperatingPoint, float]:
        # A damaged line elsewhere in the log is no reason to hand out nothing.
        rounds = RoundReader(self.run.folder.path / "metrics.jsonl").refresh()
        sizes = (size for row in rounds if row["round"] == self._best.finished_rounds for size in row["sizes"])
        values = {(size["name"], size["macs"]): float(size["value"]) for size in sizes}
        return {point: values[key] for point in self.points if (key := (point.name, point.macs)) in values}

    def _merits(self) -> dict[OperatingPoint, float]:
        return {point: self.metric.merit(value) for point, value in self.validated().items()}

    def recorded_interval(self, point: OperatingPoint) -> tuple[float, float] | None:
        """Return within which a point's accuracy lies, where the test set of the run's evaluation is small."""
        measured = self._recorded_point(point, "test")
        return None if measured is None else CurvePoint.read(measured).interval

    def _recorded_point(self, point: OperatingPoint, split: str) -> Mapping[str, Any] | None:
        for one in self._recorded("curve" if split == "test" else f"{split}_curve"):
            if _key(one) == (point.name, point.macs, point.parameters):
                return one
        return None

    @cached_property
    def _measured_on(self) -> str | None:
        """Where the recorded curve is from, if not from a test set."""
        return self.run.summary.get("curve_from") if self.run.folder.has_summary() else None

    def _is_recorded(self, point: OperatingPoint) -> bool:
        return self._recorded_point(point, "test") is not None

    def _refuse_unmeasured(self, point: OperatingPoint) -> None:
        """Refuse a network of which nothing is known and nothing can be measured."""
        if self.has_test or self._is_recorded(point):
            return
        raise InvalidInput(
            f"no client has measured the network {point.name}, and the data set {self.run.recipe.data.name!r} is not "
            "here: choose a network of the run's curve, or point data.folder at the data's files."
        )

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

    def _recorded(self, key: str) -> tuple[Mapping[str, Any], ...]:
        if not self.run.folder.has_summary():
            return ()
        summary = self.run.summary
        return tuple(summary.get(key, ())) if summary.get("best_round") == self._best.finished_rounds else ()

    def _measured(self, point: OperatingPoint, model: Model, validate: bool) -> dict[str, Any]:
        """Return the figures on both sets; of a classification the accuracies by their own names too."""
        federation, rounded = self.run.federation, self.options.float16
        measured: dict[str, dict[str, float] | None] = {}
        sources: dict[str, str | None] = {}
        test = federation.test if self.has_test else None
        recorded = {"test": self._measured_on or RECORDED, "validation": RECORDED}
        for split, evaluator in (("test", test), ("validation", federation.validation)):
            row = self._recorded_point(point, split) if point in self.points else None
            figures = (
                None if row is None else dict(row["figures"] if "figures" in row else {"accuracy": row["accuracy"]})
            )
            sources[split] = recorded[split] if figures is not None else None
            wanted = rounded if figures is not None else (split == "test" or validate)
            if wanted and isinstance(evaluator, Evaluator):
                figures = measure_figures(model.to(federation.device), evaluator.test, self.task)
                sources[split] = MEASURED_ROUNDED if rounded else MEASURED
            elif rounded and figures is not None:
                sources[split] = f"{recorded[split]}, {BEFORE_ROUNDING}"
            measured[split] = figures
        model.cpu()
        if self.task == CLASSIFICATION:
            accuracies = {split: None if one is None else one["accuracy"] for split, one in measured.items()}
            return {**{f"{split}_accuracy": one for split, one in accuracies.items()}, "accuracy_from": sources}
        figures_of = {f"{split}_figures": one for split, one in measured.items()}
        return {"task": self.task.name, "metric": self.metric.name, **figures_of, "figures_from": sources}

    def _table(self, deployed: Deployed, normalisation: Normalisation | None, batch_norms: int) -> dict[str, Any]:
        facts = self.run.recipe.data.facts
        # Token ids may be kept in fewer bytes than networks take them in.
        dtype = torch.int64 if normalisation is None else self.checked.inputs.dtype
        table = self.family.describe(deployed.network, deployed.architecture)
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
        if self._samples_from:
            return self._draw_samples()
        return self.test.select(torch.arange(min(NUM_SAMPLES, len(self.test)))).to(torch.device("cpu"))

    @property
    def _samples_from(self) -> dict[str, str]:
        """Say that the samples are drawn, where they are."""
        if not self.has_test:
            return {"samples_from": DRAWN}
        return {"samples_from": DRAWN_AS_ASKED} if self.options.drawn_samples else {}

    @torch.no_grad()
    def _difference_on_samples(self, before: Model, after: Model) -> float:
        return float((after(self._samples.inputs) - before(self._samples.inputs)).abs().max())

    def _draw_samples(self) -> Examples:
        """Draw inputs such as the data may hold, for verify to run again; their labels say nothing."""
        recipe, facts = self.run.recipe, self.run.recipe.data.facts
        generator = named_generator(recipe.seed, "samples")
        shape, normalisation = (NUM_SAMPLES, *facts.input_shape), self.run.federation.preparation.normalisation
        if facts.kind == "numbers":
            assert normalisation is not None
            by_channel = (1, -1, *[1] * (len(shape) - 2))
            mean, deviation = (np.reshape(one, by_channel) for one in (normalisation.mean, normalisation.deviation))
            drawn = torch.from_numpy(mean + deviation * generator.standard_normal(shape))
        else:
            values = 256 if facts.kind == "images" else facts.vocabulary
            drawn = torch.from_numpy(generator.integers(values, size=shape))
        pool = self.run.federation.examples.pool
        labels = torch.zeros(NUM_SAMPLES, *facts.label_shape, dtype=pool.labels.dtype)
        return Examples(drawn.to(pool.inputs.dtype), labels)

    @cached_property
    def _calibration_facts(self) -> dict[str, Any]:
        if not self.has_test:
            return {"examples": 0, "sha256": _hash()}
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


def _key(row: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return what tells the networks of a recorded curve apart."""
    return row["name"], row["macs"], row["parameters"]


def _value(row: Mapping[str, Any]) -> float:
    """Return a recorded network's scoring metric; the first release wrote its accuracy alone."""
    return float(row["value"] if "value" in row else row["accuracy"])


def _masked(deployed: Deployed, point: OperatingPoint) -> dict[str, Any] | None:
    """Say what a network costs whose zeros are not left out; None for one without a mask."""
    network, architecture = deployed.network, deployed.architecture
    dense = {"macs": network.macs(architecture), "parameters": network.parameters(architecture)}
    return {"counted": MASKED, "dense": dense} if dense["parameters"] != point.parameters else None


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
