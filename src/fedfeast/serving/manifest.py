"""Manifests: JSON files that vouch for the files beside them, and carry a seal against changes of themselves."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from fedfeast.data.tasks import ACCURACY, Metric, task_named
from fedfeast.errors import InvalidInput
from fedfeast.evaluation.by_clients import KEPT_BACK
from fedfeast.units import format_macs
from fedfeast.whole_files import sha256_of, write_json

MOST_COUNT = 10**18  # of MACs, parameters or bytes of one network
MOST_BYTES = 16 << 20  # of a manifest; those of a vocabulary have a megabyte


def write_manifest(path: Path, content: Mapping[str, Any], files: Iterable[str]) -> dict[str, Any]:
    """Write the content with the sha256 of the named files beside it, sealed; return what was written."""
    hashes = {name: sha256_of(path.parent / name) for name in files}
    manifest: dict[str, Any] = json.loads(json.dumps({**content, "sha256": hashes}))  # as it will be read
    manifest["seal"] = seal_of(manifest)
    write_json(path, manifest)
    return manifest


def read_manifest(path: Path, remedy: str, checked: bool = True) -> dict[str, Any]:
    """Return a manifest whose seal holds and, unless told otherwise, whose files all have their hashes."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        hashes = {str(name): str(expected) for name, expected in manifest["sha256"].items()}
        whole = isinstance(manifest["format"], str) and isinstance(manifest["seal"], str)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged: {remedy}.") from error
    if not whole or manifest["seal"] != seal_of(manifest):
        raise InvalidInput(f"{path} was changed after it was written (its seal does not hold): {remedy}.")
    for name, expected in hashes.items() if checked else ():
        file = path.parent / name
        if not name.isprintable() or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise InvalidInput(f"{path} names {name}, which is not beside it: {remedy}.")
        if not file.is_file():
            raise InvalidInput(f"{file} is missing, and the manifest names it: {remedy}.")
        if sha256_of(file) != expected:
            raise InvalidInput(f"{file} does not match its hash in the manifest: {remedy}.")
    return dict(manifest)


def require_vouched(path: Path, manifest: Mapping[str, Any], names: Iterable[str], remedy: str) -> None:
    """Refuse a manifest that says nothing of a file which is to be used."""
    missing = [name for name in names if name not in manifest["sha256"]]
    if missing:
        raise InvalidInput(f"{path} has no hash of {missing[0]}, and so vouches for nothing: {remedy}.")


def require_sound(path: Path, manifest: Mapping[str, Any], remedy: str) -> None:
    """Refuse a manifest without MACs, or with facts that no network has."""
    if "macs" not in manifest:
        raise InvalidInput(f"{path} does not state macs: {remedy}.")
    wrong = misfit_facts(manifest)
    if wrong is not None:
        raise InvalidInput(f"{path} states {wrong} that no network has: {remedy}.")


def misfit_facts(facts: Mapping[str, Any]) -> str | None:
    """Return which fact of a network, in a manifest or a ladder's index, cannot be; None where all can."""
    for key, is_sound in _KINDS.items():
        if key in facts and not is_sound(facts[key]):
            return key
    return None


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= MOST_COUNT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _is_share(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 <= value <= 1)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def _are_figures(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(one is None or _is_number(one) for one in value.values()))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("macs", "price", "parameters", "bytes"), _is_count),
    **dict.fromkeys(("test_accuracy", "validation_accuracy"), _is_share),
    **dict.fromkeys(("test_figures", "validation_figures"), _are_figures),
    **dict.fromkeys(("name", "task", "metric", "weights"), _is_word),
    **dict.fromkeys(("class_names", "vocabulary"), _are_names),
}


def metric_of(manifest: Mapping[str, Any]) -> Metric:
    """Return the metric of a manifest's figures; where it names no task, the networks tell classes apart."""
    if "task" not in manifest:
        return ACCURACY
    return task_named(manifest["task"]).metric_named(manifest["metric"])


def value_of(manifest: Mapping[str, Any], split: str = "test") -> float | None:
    """Return what a network comes to on a set of examples in that metric; None where it was not measured."""
    if "task" not in manifest:
        accuracy: float | None = manifest[f"{split}_accuracy"]
        return accuracy
    figures = manifest[f"{split}_figures"]
    return None if figures is None else float(figures[manifest["metric"]])


def label_of(manifest: Mapping[str, Any]) -> str:
    """Return what that value is called: a test's, unless it was measured on examples that clients kept back."""
    sources, metric = manifest["figures_from" if "task" in manifest else "accuracy_from"], metric_of(manifest)
    return metric.name if str(sources["test"]).startswith(KEPT_BACK) else f"test {metric.name}"


def better_in_words(manifest: Mapping[str, Any]) -> str | None:
    """Say which other network of the run does better within the same limits; None where none is known to."""
    if "better" not in manifest:
        return None
    better, metric = manifest["better"], metric_of(manifest)
    kind = "the run's network" if manifest["chosen_by"] == "search" else "the smaller network"
    rounding = f", both {better['compared']}" if "compared" in better else ""
    return (
        f"{kind} of {format_macs(better['macs'])} MACs has the better {better['measured_on']} {metric.name}, "
        f"{metric.show(better['value'])} against {metric.show(better['against'])}{rounding}"
    )


def seal_of(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 of everything a manifest says but the seal itself."""
    # A seal notices accidents and careless edits; against a forger the manifest's own hash must be kept elsewhere.
    content = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
