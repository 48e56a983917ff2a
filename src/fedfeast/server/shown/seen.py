"""All that a server knows of a run or a ladder at one moment."""

from dataclasses import dataclass
from typing import Any

from fedfeast.data import DatasetFacts
from fedfeast.data.tasks import Metric
from fedfeast.evaluation.fairness import Fairness
from fedfeast.evaluation.published import ANCHORS_MACS, TRAINING_RULES
from fedfeast.presentation.round_reader import Row
from fedfeast.server.offer import Offer
from fedfeast.server.shown.progress import State


@dataclass(frozen=True)
class About:
    """What was trained, with what, and for how long."""

    recipe: str
    method: str
    data: str
    data_facts: DatasetFacts
    metric: Metric
    total_rounds: int
    chosen_by: str  # how the served round was, in words

    @property
    def anchors(self) -> list[dict[str, float]]:
        """The paper's FEAST on the data set, where it was published: accuracy in percent by MACs."""
        published = TRAINING_RULES.get(self.data, {}).get("full", ())
        return [{"macs": macs, "accuracy": accuracy} for macs, accuracy in zip(ANCHORS_MACS, published, strict=False)]


@dataclass(frozen=True, eq=False)
class Seen:
    """What is answered until the folder was looked at again."""

    about: About
    state: State
    note: str
    rows: tuple[Row, ...] = ()
    summary: dict[str, Any] | None = None
    offer: Offer | None = None
    variants: tuple[dict[str, Any], ...] = ()
    fleet: dict[str, Any] | None = None
    fairness: Fairness | None = None

    def merits(self) -> dict[str, float]:
        """Return how good the validated variants are by id, greater for what is better."""
        values = {one["id"]: one["validation_value"] for one in self.variants}
        return {name: self.about.metric.merit(value) for name, value in values.items() if value is not None}


def describe_variants(offer: Offer, clients: list[int] | None = None) -> tuple[dict[str, Any], ...]:
    """Return what is told of every variant; ``clients`` are those whose largest affordable one it is."""
    bundles, validated = offer.bundles, offer.bundles.validated()
    return tuple(
        {
            "id": name,
            "name": point.name,
            "macs": point.macs,
            "price": max(point.price, 1),  # of one that everybody is given; its axis is logarithmic
            "parameters": point.parameters,
            "test_accuracy": bundles.accuracy(point),
            "test_value": bundles.value(point),
            "test_interval": bundles.interval(point),
            "validation_value": validated.get(point),
            "latency_ms": offer.latencies.get(position),
            "clients": None if clients is None else clients[position],
            "onnx": f"/models/{name}.onnx",
            "safetensors": f"/models/{name}.safetensors",
        }
        for position, (name, point) in enumerate(offer.by_id.items())
    )
