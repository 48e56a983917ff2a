"""A ladder: bundles of one run for several budgets in one folder, with an index that says which serves whom."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.runs import Run
from fedfeast.serving.bundle import chosen_facts, is_written_here, load_bundle, loader_source
from fedfeast.serving.card import write_ladder_card
from fedfeast.serving.choice import Limits, spread_points
from fedfeast.serving.exporting import SUFFIXES, Exporter, ExportOptions
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families import standalone
from fedfeast.serving.manifest import misfit_facts, read_manifest, require_vouched, write_manifest
from fedfeast.whole_files import refuse_unknown_ending, whole_folder, write_text

FORMAT = "fedfeast-ladder/1"
INDEX = "ladder.json"
REMEDY = "export the ladder again"

OnRung = Callable[[int, int, dict[str, Any]], None]  # how many are written, of how many, and the newest one's manifest


def export_ladder(
    run: Run | Path | str,
    out: Path | str,
    budgets: int | Sequence[float],
    options: ExportOptions | None = None,
    on_rung: OnRung = lambda done, total, manifest: None,
    force: bool = False,
    best: bool = False,
) -> dict[str, Any]:
    """Write a bundle with exports for every budget in MACs, or for so many sizes from least to largest.

    Returns the index. Budgets that the same network serves share it. Accuracies come from the run's evaluation; those
    of networks that are rounded to float16 are measured again where the data are here.
    With ``force`` the ladder replaces one, or a bundle, that lies there. With ``best`` it has only networks that no
    smaller one validates better than.
    """
    if Path(out).suffix in SUFFIXES:
        raise InvalidInput(f"--out {out} is one file, and a ladder is a folder: leave {Path(out).suffix} out.")
    refuse_unknown_ending(Path(out))
    options = options or ExportOptions()
    extractor = Extractor(run, options)
    exporter = Exporter(extractor, options)
    served = plan_rungs(extractor, budgets, best)
    with whole_folder(Path(out), is_written_here if force else None) as folder:
        rungs, manifests = [], {}
        for number, (point, budgets_macs) in enumerate(served.items(), start=1):
            name = f"{number:02d}-{re.sub(r'[^A-Za-z0-9._-]+', '-', point.name)}"
            manifest = _write_rung(folder / name, extractor, exporter, point, "best" if best else "largest")
            rungs.append({"folder": name, "budgets_macs": budgets_macs, **_summary(manifest)})
            manifests[name] = manifest
            on_rung(number, len(served), manifest)
        write_text(folder / "model.py", loader_source())
        write_text(folder / "README.md", write_ladder_card(manifests))
        content = {"format": FORMAT, "fedfeast": manifest["fedfeast"], "run": extractor.run_facts, "rungs": rungs}
        files = ["model.py", "README.md", *(f"{rung['folder']}/manifest.json" for rung in rungs)]
        return write_manifest(folder / INDEX, content, files)


def plan_rungs(
    extractor: Extractor, budgets: int | Sequence[float], best: bool = False
) -> dict[OperatingPoint, list[float]]:
    """Return the points to write, least MACs first, each with the budgets it serves."""
    if best:
        extractor.require_validated()
    if isinstance(budgets, int):
        points = [one for one in extractor.points if not best or _is_best(extractor, one)]
        return {point: [_least_budget(point)] for point in spread_points(points, budgets)}
    if not budgets:
        raise InvalidInput("--budgets is empty: give MACs like 25e6,50e6.")
    served: dict[OperatingPoint, list[float]] = {}
    for budget in sorted(budgets):
        served.setdefault(extractor.choose(Limits(max_macs=budget), best=best), []).append(float(budget))
    return served


def _least_budget(point: OperatingPoint) -> float:
    """Return the least budget that affords a point; one MAC where everybody is given it."""
    return float(max(point.price, 1))


def _is_best(extractor: Extractor, point: OperatingPoint) -> bool:
    """Return whether no better validated network is affordable to all who afford this one."""
    return extractor.choose(Limits(max_macs=_least_budget(point)), best=True) == point


def _write_rung(
    folder: Path, extractor: Extractor, exporter: Exporter, point: OperatingPoint, chosen_by: str
) -> dict[str, Any]:
    folder.mkdir()
    # Choice: validating costs more than all the rest; a ladder has validation figures where the run's evaluation has.
    extracted = extractor.extract(point, validate=False)
    better = extractor.better(point, Limits(max_macs=_least_budget(point)))
    return exporter.write_bundle(extracted, folder, chosen_facts(extractor, chosen_by, point, better))


def _summary(manifest: dict[str, Any]) -> dict[str, Any]:
    keys = ["name", "macs", "price", "parameters", "bytes", "weights", "test_accuracy", "validation_accuracy"]
    keys += ["task", "metric", "test_figures", "validation_figures"]  # of other tasks
    keys += ["better"]
    return {**{key: manifest[key] for key in keys if key in manifest}, "exports": manifest["exports"]}


def _is_rung(rung: Any) -> bool:
    if not isinstance(rung, dict) or not isinstance(rung.get("folder"), str):
        return False
    is_inside = Path(rung["folder"]).name == rung["folder"] != ".."
    return is_inside and rung.keys() >= {"name", "macs", "parameters"} and misfit_facts(rung) is None


@dataclass(frozen=True)
class Ladder:
    """A ladder that was written; open one with Ladder.open."""

    folder: Path
    index: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> "Ladder":
        """Open a ladder, its index and the manifests of its bundles checked against their hashes."""
        folder = Path(folder)
        if not (folder / INDEX).is_file():
            raise InvalidInput(f"{folder} is no ladder (it has no {INDEX}): give a folder that export --ladder wrote.")
        index = read_manifest(folder / INDEX, REMEDY)
        if index["format"] != FORMAT:
            raise InvalidInput(f"{folder} has the format {index['format']!r} and not {FORMAT!r}: {REMEDY}.")
        rungs = index.get("rungs")
        if not isinstance(rungs, list) or not rungs or not all(map(_is_rung, rungs)):
            raise InvalidInput(f"{folder / INDEX} lists no bundles: {REMEDY}.")
        names = ("model.py", *(f"{rung['folder']}/manifest.json" for rung in rungs))
        require_vouched(folder / INDEX, index, names, REMEDY)
        return cls(folder, index)

    @property
    def rungs(self) -> list[dict[str, Any]]:
        """What the index says of every bundle, least MACs first."""
        return list(self.index["rungs"])

    def choose(self, max_macs: float) -> Path:
        """Return the folder of the largest bundle within a budget."""
        try:
            return standalone.choose_rung(self.folder, max_macs)
        except ValueError as error:
            raise InvalidInput(str(error)) from error

    def load(self, max_macs: float) -> standalone.Model:
        """Return the largest network within a budget, its files checked."""
        return load_bundle(self.choose(max_macs))
