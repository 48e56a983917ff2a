"""A run that is served: its folder is looked at again and again, and what was seen last is answered at once."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.published import ANCHORS_MACS, TRAINING_RULES
from fedfeast.presentation.budget_histogram import budget_histogram
from fedfeast.presentation.round_reader import RoundReader, Row
from fedfeast.runs import Run
from fedfeast.server.offer import Offer
from fedfeast.server.progress import SENTENCES, State, state_of
from fedfeast.serving.bundle_cache import BundleCache

Signature = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Seen:
    """All that is known of a run at one moment."""

    state: State
    note: str
    rows: tuple[Row, ...]
    summary: dict[str, Any] | None
    offer: Offer | None
    variants: tuple[dict[str, Any], ...]
    fleet: dict[str, Any] | None


def _sentence(state: State, summary: dict[str, Any] | None) -> str:
    """Say what the run is doing, and when it has finished on what it was measured."""
    measured_on = (summary or {}).get("curve_from")
    return f"Finished and measured on {measured_on}." if state == "finished" and measured_on else SENTENCES[state]


class WatchedRun:
    """One run on show."""

    def __init__(self, path: Path, name: str) -> None:
        self.run, self.name = Run.open(path), name
        self.total_rounds = self.run.recipe.training.rounds
        self._rounds = RoundReader(path / "metrics.jsonl")
        self._looked_at: Signature | None = None
        self._problem = ""  # why the newest weights are not on offer
        self._others: Signature | None = None
        self._offers: tuple[Offer, ...] = ()  # newest first; one that was just replaced is still handed out
        self.seen = Seen("waiting", SENTENCES["waiting"], (), None, None, (), None)
        self.refresh()

    def refresh(self) -> None:
        """Look at the folder again."""
        folder, rows, seen = self.run.folder, self._rounds.refresh(), self.seen
        self._refresh_offer()
        offer = self._offers[0] if self._offers else None
        others = _signature(folder.path, ("summary.json", "latency.json", "clients.csv"))
        summary, variants, fleet = seen.summary, seen.variants, seen.fleet
        if others != self._others or offer is not seen.offer:
            self._others, summary = others, self._summary()
            variants, fleet = self._describe(offer)
        summarised = summary["finished_rounds"] if summary is not None else None
        state = state_of(folder, len(rows), self.total_rounds, summarised)
        self.seen = Seen(state, self._problem or _sentence(state, summary), rows, summary, offer, variants, fleet)

    def note_problem(self, reason: str) -> None:
        """Say why the folder could not be looked at; what was seen before stays."""
        self.seen = replace(self.seen, note=f"The run's folder cannot be read ({reason}).")

    def offer_of(self, variant: str) -> Offer | None:
        """Return the offer that has a variant: the present one, or the one before it."""
        return next((offer for offer in self._offers if variant in offer.by_id), None)

    def _refresh_offer(self) -> None:
        """Put the best round's weights on offer, where they or the recorded latencies are new."""
        folder = self.run.folder.path
        weights = _signature(folder / "checkpoints", sorted(file.name for file in folder.glob("checkpoints/best-*")))
        looked_at = (*weights, *_signature(folder, ("latency.json",)))
        if looked_at == self._looked_at:
            return
        self._looked_at, self._problem = looked_at, ""
        if not weights:
            return
        try:
            self._offers = (Offer(BundleCache(self.run), self.name, folder / "latency.json"), *self._offers[:1])
        except InvalidInput as error:
            self._problem = str(error)

    @property
    def anchors(self) -> list[dict[str, float]]:
        """The paper's FEAST on the run's data set, where it was published: accuracy in percent by MACs."""
        published = TRAINING_RULES.get(self.run.recipe.data.name, {}).get("full", ())
        return [{"macs": macs, "accuracy": accuracy} for macs, accuracy in zip(ANCHORS_MACS, published, strict=False)]

    def _summary(self) -> dict[str, Any] | None:
        try:
            return self.run.summary
        except InvalidInput:
            return None

    def _describe(self, offer: Offer | None) -> tuple[tuple[dict[str, Any], ...], dict[str, Any] | None]:
        points = offer.bundles.points if offer is not None else ()
        fleet = self._fleet([point.price for point in points])
        if offer is None:
            return (), fleet
        clients = fleet["by_variant"] if fleet is not None else [None] * len(points)
        return tuple(
            {
                "id": name,
                "name": point.name,
                "macs": point.macs,
                "price": point.price,
                "parameters": point.parameters,
                "test_accuracy": offer.bundles.accuracy(point),
                "test_value": offer.bundles.value(point),
                "latency_ms": offer.latencies.get(position),
                "clients": clients[position],
                "onnx": f"/models/{name}.onnx",
                "safetensors": f"/models/{name}.safetensors",
            }
            for position, (name, point) in enumerate(offer.by_id.items())
        ), fleet

    def _fleet(self, prices: list[int]) -> dict[str, Any] | None:
        try:
            return budget_histogram(self.run.folder.budgets_macs(), prices)
        except InvalidInput:  # not written yet
            return None


def _signature(folder: Path, names: tuple[str, ...] | list[str]) -> Signature:
    """Return which of the files exist and when each was last written."""
    return tuple((name, (folder / name).stat().st_mtime_ns) for name in names if (folder / name).is_file())
