"""A run that is served: its folder is looked at again and again, and what was seen last is answered at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput, without_places
from fedfeast.evaluation import Curve
from fedfeast.evaluation.fairness import Fairness, Participation, measure_fairness
from fedfeast.presentation.budget_histogram import budget_histogram
from fedfeast.presentation.round_reader import RoundReader, Row
from fedfeast.recipes.building import build_central_privacy, build_selection
from fedfeast.runs import Run
from fedfeast.server.offer import Offer
from fedfeast.server.shown.progress import SENTENCES, State, state_of
from fedfeast.server.shown.seen import About, Seen, describe_variants
from fedfeast.serving.bundle_cache import BundleCache
from fedfeast.whole_files import sha256_of

Signature = tuple[tuple[str, int], ...]
Identity = tuple[int, str]


def _about(run: Run) -> About:
    recipe = run.recipe
    names = recipe.name, recipe.method_name, recipe.data.name
    return About(*names, recipe.data.facts, run.metric, recipe.training.rounds, build_selection(recipe).words)


def _sentence(state: State, summary: dict[str, Any] | None) -> str:
    """Say what the run is doing, and when it has finished on what it was measured."""
    measured_on = (summary or {}).get("curve_from")
    return f"Finished and measured on {measured_on}." if state == "finished" and measured_on else SENTENCES[state]


class WatchedRun:
    """One run on show."""

    run: Run
    seen: Seen

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path
        self._identity: Identity | None = None
        self._looked_at: Signature | None = None
        self._others: Signature | None = None
        self._problem = ""  # why the newest weights are not on offer, or are not the best
        self._damaged_files: list[str] = []
        self._clients: list[dict[str, str]] = []
        self._own_values: dict[str, tuple[float, ...]] = {}
        self._taking_part, self._counted = Participation(), tuple[Row, ...]()  # and the rounds that it counts
        self._offers: tuple[Offer, ...] = ()  # newest first; one that was just replaced is still handed out
        self._lost: frozenset[str] = frozenset()  # variants that were on offer when the folder vanished
        self._open()
        self.refresh()

    @property
    def total_rounds(self) -> int:
        """How many rounds the run is to have."""
        return self.run.recipe.training.rounds

    def refresh(self) -> None:
        """Look at the folder again; another run in the same place is begun with anew."""
        identity = _identity(self._path)
        if identity is None:
            self._lost = self._lost.union(*(offer.by_id for offer in self._offers))
            self._identity, self._offers = None, ()
            self.seen = Seen(self.seen.about, "gone", SENTENCES["gone"])
            return
        if identity != self._identity:
            self._identity, self._offers = None, ()
            self.seen = Seen(self.seen.about, "waiting", SENTENCES["waiting"])
            self._open()
        folder, rows, seen = self.run.folder, self._rounds.refresh(), self.seen
        self._refresh_offer()
        offer = self._offers[0] if self._offers else None
        others = _signature(folder.path, ("summary.json", "latency.json", "clients.csv", "test_clients.csv"))
        summary, variants, fleet, fairness = seen.summary, seen.variants, seen.fleet, seen.fairness
        others_are_new = others != self._others or offer is not seen.offer
        if others_are_new:
            self._damaged_files = []
            self._others, summary = others, self._summary()
            variants, fleet = self._describe(offer)
            self._own_values = self._read_own_values()
        if others_are_new or rows is not seen.rows:
            fairness = self._fairness(rows, summary)
        summarised = summary["finished_rounds"] if summary is not None else None
        state = state_of(folder, len(rows), self.total_rounds, summarised)
        note = " ".join(self._problems()) or _sentence(state, summary)
        self.seen = Seen(_about(self.run), state, note, rows, summary, offer, variants, fleet, fairness)

    def note_problem(self, reason: str) -> None:
        """Say why the folder could not be looked at; what was seen before stays."""
        self.seen = replace(self.seen, note=f"The run's folder cannot be read ({without_places(reason)}).")

    @property
    def is_gone(self) -> bool:
        """Whether the folder is no longer there, at this very moment."""
        return not (self._path / "recipe.toml").is_file()

    def offer_of(self, variant: str) -> Offer | None:
        """Return the offer that has a variant, the present one or the one before it, while the folder is there."""
        offer = next((offer for offer in self._offers if variant in offer.by_id), None)
        return None if offer is None or self.is_gone else offer

    def has_lost(self, variant: str) -> bool:
        """Return whether a variant was on offer until the folder vanished."""
        return variant in self._lost.union(*(offer.by_id for offer in self._offers)) and self.is_gone

    def _open(self) -> None:
        """Begin with the run that lies in the folder now."""
        identity, self.run = _identity(self._path), Run.open(self._path)
        self._rounds = RoundReader(self._path / "metrics.jsonl")
        self._looked_at = self._others = None
        self._problem, self._damaged_files = "", []
        self.seen = Seen(_about(self.run), "waiting", SENTENCES["waiting"])
        self._identity = identity

    def _refresh_offer(self) -> None:
        """Put the best round's weights on offer, where they or the recorded latencies are new."""
        folder = self._path
        weights = _signature(folder / "checkpoints", sorted(file.name for file in folder.glob("checkpoints/best-*")))
        looked_at = (*weights, *_signature(folder, ("latency.json",)))
        if looked_at == self._looked_at:
            return
        self._looked_at, self._problem = looked_at, ""
        if not weights:
            return
        self.run.damage = ""
        try:
            offer = Offer(BundleCache(self.run), self.name, folder / "latency.json")
        except InvalidInput as error:
            self._problem = without_places(str(error))
            return
        if _identity(folder) != self._identity:  # its weights may be another run's already
            self._looked_at = None
            return
        self._offers = (offer, *self._offers[:1])
        self._problem = f"{self.run.damage}." if self.run.damage else ""

    def _problems(self) -> list[str]:
        """Return what is wrong with the folder's files, in sentences."""
        lines = self._rounds.damaged
        damaged = [*self._damaged_files, *([f"metrics.jsonl ({lines} of its lines)"] if lines else [])]
        sentence = f"Damaged in the run's folder: {', '.join(damaged)}." if damaged else ""
        return [one for one in (self._problem, sentence) if one]

    def _summary(self) -> dict[str, Any] | None:
        if not self.run.folder.has_summary():
            return None
        try:
            return self.run.summary
        except InvalidInput:
            self._damaged_files.append("summary.json")
            return None

    def _describe(self, offer: Offer | None) -> tuple[tuple[dict[str, Any], ...], dict[str, Any] | None]:
        points = offer.bundles.points if offer is not None else ()
        fleet = self._fleet([point.price for point in points])
        if offer is None:
            return (), fleet
        return describe_variants(offer, None if fleet is None else fleet["by_variant"]), fleet

    def _fleet(self, prices: list[int]) -> dict[str, Any] | None:
        self._clients = []
        if not (self._path / "clients.csv").is_file():
            return None  # not written yet
        try:
            self._clients = self.run.folder.clients()
            return budget_histogram(self.run.folder.budgets_macs(), prices)
        except InvalidInput:
            self._damaged_files.append("clients.csv")
            return None

    def _read_own_values(self) -> dict[str, tuple[float, ...]]:
        try:
            return self.run.folder.own_values()
        except InvalidInput:
            self._damaged_files.append("test_clients.csv")
            return {}

    def _fairness(self, rows: tuple[Row, ...], summary: dict[str, Any] | None) -> Fairness | None:
        """Return who took part and what clients get; rounds that were counted before are not counted again."""
        if not self._clients:
            return None
        names = [row["name"] for row in self._clients]
        if rows[: len(self._counted)] != self._counted:  # cut back, or another run's
            self._taking_part, self._counted = Participation(), ()
        for row in rows[len(self._counted) :]:
            self._taking_part.add(row["taking_part"], names)
        self._counted = rows
        curve = None if summary is None else Curve.read(summary["curve"], summary)
        hidden = build_central_privacy(self.run.recipe) is not None  # it counts on a draw that stays unknown
        taking_part = None if hidden else self._taking_part
        return measure_fairness(self._clients, taking_part, self.run.metric, curve, self._own_values)


def _signature(folder: Path, names: tuple[str, ...] | list[str]) -> Signature:
    """Return which of the files exist and when each was last written."""
    return tuple((name, (folder / name).stat().st_mtime_ns) for name in names if (folder / name).is_file())


def _identity(folder: Path) -> Identity | None:
    """Return what tells a run from another one in the same place: the folder itself and its recipe; None for none."""
    try:
        return folder.stat().st_ino, sha256_of(folder / "recipe.toml")
    except OSError:
        return None
