"""A ladder that is served: trained networks in a folder, without the run that they come from."""

from dataclasses import replace
from pathlib import Path

from fedfeast.errors import InvalidInput, without_places
from fedfeast.server.offer import Offer
from fedfeast.server.shown.ladder_bundles import LadderBundles
from fedfeast.server.shown.progress import SENTENCES
from fedfeast.server.shown.seen import About, Seen, describe_variants
from fedfeast.serving.ladder import INDEX, REMEDY, Ladder
from fedfeast.serving.manifest import metric_of


class WatchedLadder:
    """One ladder on show; another one in the same place is begun with anew."""

    seen: Seen

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path
        self._lost: frozenset[str] = frozenset()  # variants that were on offer when the folder vanished
        self._open()

    def refresh(self) -> None:
        """Look at the folder again."""
        if self.is_gone:
            self._lose()
            self.seen = Seen(self.seen.about, "gone", "The ladder's folder is gone.")
        elif self.seen.offer is None or self._written_at() != self._opened_at:
            self._lose()
            try:
                self._open()
            except InvalidInput as error:
                self.seen = Seen(self.seen.about, "ladder", without_places(str(error)))

    def note_problem(self, reason: str) -> None:
        """Say why the folder could not be looked at; what was seen before stays."""
        self.seen = replace(self.seen, note=f"The ladder's folder cannot be read ({without_places(reason)}).")

    @property
    def is_gone(self) -> bool:
        """Whether the folder is no longer there, at this very moment."""
        return not (self._path / INDEX).is_file()

    def offer_of(self, variant: str) -> Offer | None:
        """Return the offer if it has a variant, while the folder is there."""
        offer = self.seen.offer
        return offer if offer is not None and variant in offer.by_id and not self.is_gone else None

    def has_lost(self, variant: str) -> bool:
        """Return whether a variant was on offer until the folder vanished."""
        offered = self.seen.offer.by_id if self.seen.offer is not None else {}
        return (variant in self._lost or variant in offered) and self.is_gone

    def _open(self) -> None:
        self._opened_at = self._written_at()
        ladder = Ladder.open(self._path)
        try:
            bundles = LadderBundles(ladder)
            run, offer = bundles.facts, Offer(bundles, self.name)
            names = run["recipe"], run["method"], run["data"]
            about = About(*names, bundles.data_facts, metric_of(ladder.rungs[0]), int(run["best_round"]), "")
            variants = describe_variants(offer)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # of somebody else's making
            raise InvalidInput(f"{self._path / INDEX} does not describe its networks: {REMEDY}.") from error
        self.seen = Seen(about, "ladder", SENTENCES["ladder"], offer=offer, variants=variants)

    def _lose(self) -> None:
        if self.seen.offer is not None:
            self._lost = self._lost.union(self.seen.offer.by_id)

    def _written_at(self) -> int:
        return (self._path / INDEX).stat().st_mtime_ns
