"""Post-hoc extraction: the largest affordable network out of a trained supernet, cached or newly found."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.data import Examples
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import measure_accuracy, recalibrate
from fedfeast.evaluation.slice_regions import ActivatedSupport
from fedfeast.federation import OperatingPoint
from fedfeast.methods.served_variants import cached_points, format_macs
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.randomness import named_generator
from fedfeast.runs import Run
from fedfeast.runs.outline import Outline, outline
from fedfeast.serving.bundle import describe_network, state_dict_of, write_bundle
from fedfeast.variants import Variant
from fedfeast.variants.fitness import Objective, score
from fedfeast.variants.search import search_one

# Choice: one percent of untrained weights costs a searched network as much as a fifth of a typical fitness.
UNTRAINED_PENALTY = 1e5
UNTRAINED_WARNING = 0.01  # share of the weights
# Choice: the fitness alone may favour a network far below the budget; the least use that costs nothing is 90 %.
UNUSED_PENALTY, WANTED_USE = 1e5, 0.9


@dataclass(frozen=True)
class Limits:
    """What a device can afford."""

    max_macs: float | None = None
    max_parameters: float | None = None

    def __post_init__(self) -> None:
        if self.max_macs is None and self.max_parameters is None:
            raise InvalidInput("no limit was given: say --max-macs or --max-params.")
        for name, limit in (("--max-macs", self.max_macs), ("--max-params", self.max_parameters)):
            if limit is not None and not limit > 0:
                raise InvalidInput(f"{name} {limit:g}: give a positive number.")

    def admit(self, macs: float, parameters: float) -> bool:
        """Return whether a network of this cost is affordable."""
        return macs <= (self.max_macs or np.inf) and parameters <= (self.max_parameters or np.inf)

    def __str__(self) -> str:
        parts = []
        if self.max_macs is not None:
            parts.append(f"{self.max_macs:.0f} MACs")
        if self.max_parameters is not None:
            parts.append(f"{self.max_parameters:.0f} parameters")
        return " and ".join(parts)


def extract(run: Run | Path | str, out: Path | str, limits: Limits, search: bool = False) -> dict[str, Any]:
    """Write the largest affordable network of a run as a bundle; return its manifest."""
    run = run if isinstance(run, Run) else Run.open(run)
    built = outline(run.recipe)
    network, points = built.method.network, built.method.operating_points()
    if not isinstance(network, ElasticResNet):
        raise InvalidInput(
            f"{run.folder.path} was trained by {run.recipe.method_name}, whose network cannot be extracted yet: "
            "give a run of feast, superfednas, deepfednas or fedavg."
        )
    support = ActivatedSupport.of(network, _trained_variants(network, built))
    architecture = _search(network, support, limits, run) if search else _choose(network, points, limits)
    (point,) = cached_points([Variant.of(network, architecture)])
    measured = measure_point(run, point)
    manifest = {
        "fedfeast": version("fedfeast"),
        "run": {
            "recipe": run.recipe.name,
            "method": run.recipe.method_name,
            "data": run.recipe.data.name,
            "seed": run.recipe.seed,
            "best_round": run.best().finished_rounds,
        },
        "architecture": asdict(architecture),
        "cached": any(architecture == served.architecture for served in points),
        "macs": point.macs,
        "parameters": point.parameters,
        "untrained_share": support.never_activated(architecture),
        **measured.accuracies,
        "calibration": {
            "examples": len(run.federation.test.calibration),
            "sha256": _hash(run.federation.test.calibration),
        },
        "network": describe_network(network.space, architecture, run.federation.test.normalisation),
    }
    write_bundle(Path(out), measured.weights, manifest)
    return manifest


@dataclass(frozen=True, eq=False)
class Measured:
    """A recalibrated network: its tensors by the stand-alone names, and how good it is."""

    weights: dict[str, Any]
    accuracies: dict[str, float]


def measure_point(run: Run, point: OperatingPoint) -> Measured:
    """Deploy a point from the run's best weights, recalibrate it, and measure validation and test accuracy."""
    federation = run.federation
    deployed = federation.method.deploy(run.best().flat.to(federation.device), point)
    statistics = recalibrate(deployed, federation.test.calibration, federation.test.normalisation)
    accuracies = {
        f"{name}_accuracy": measure_accuracy(deployed, statistics, examiner.test, examiner.normalisation)
        for name, examiner in (("test", federation.test), ("validation", federation.validation))
    }
    return Measured(state_dict_of(deployed, statistics), accuracies)


def _choose(network: ElasticResNet, points: Sequence[OperatingPoint], limits: Limits) -> Architecture:
    affordable = [point for point in points if limits.admit(point.macs, point.parameters)]
    if not affordable:
        least = Variant.of(network, network.space.smallest)
        raise InvalidInput(
            f"no cached variant fits {limits}: the smallest has {points[0].macs} MACs and "
            f"{points[0].parameters} parameters; with --search the least possible "
            f"is {least.macs} MACs and {least.parameters} parameters."
        )
    chosen = affordable[-1].architecture
    assert isinstance(chosen, Architecture)
    return chosen


def _search(network: ElasticResNet, support: ActivatedSupport, limits: Limits, run: Run) -> Architecture:
    """Find the fittest affordable network, preferring weights that some client has trained."""
    space, stages = network.space, network.space.num_stages
    depths = np.array(space.depths)

    def penalty(genes: np.ndarray) -> np.ndarray:
        chosen = depths[genes[:, :stages]], genes[:, stages : 2 * stages], genes[:, 2 * stages :]
        untrained = 1 - support.activated.count(*chosen) / support.total.count(*chosen)
        cost = score(space, genes, Objective())
        use = np.maximum(cost.macs / (limits.max_macs or np.inf), cost.parameters / (limits.max_parameters or np.inf))
        return np.asarray(UNTRAINED_PENALTY * untrained + UNUSED_PENALTY * np.maximum(WANTED_USE - use, 0))

    found = search_one(
        space,
        limits.max_macs or float(network.macs(space.largest)),
        named_generator(run.recipe.seed, "extract", str(limits)),
        extra_penalty=penalty,
        max_parameters=limits.max_parameters,
    )
    return found.architecture


def _trained_variants(network: ElasticResNet, built: Outline) -> list[Variant]:
    """Return the networks that some participating client passes through in training."""
    trained = dict.fromkeys(one for level in built.levels for one in level.expected_passes(built.method))
    return [Variant.of(network, one) for one in trained if isinstance(one, Architecture)]


def _hash(examples: Examples) -> str:
    digest = hashlib.sha256(examples.images.cpu().numpy().tobytes())
    digest.update(examples.labels.cpu().numpy().tobytes())
    return digest.hexdigest()


def describe_extraction(manifest: dict[str, Any]) -> str:
    """Say in one line what a bundle holds."""
    return (
        f"{format_macs(manifest['macs'])} MACs, {manifest['parameters']:,} parameters, "
        f"test accuracy {100 * manifest['test_accuracy']:.2f} %"
    )
