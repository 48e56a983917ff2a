"""The run folder: a directory that describes one run completely."""

import csv
import io
import json
import os
import platform
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, Measured
from fedfeast.locks import held_alone
from fedfeast.machine import device_name, processor_name
from fedfeast.methods import METHODS, find_method
from fedfeast.planning.named_files import refuse_bad_files
from fedfeast.recipes.building import build_cache, build_network
from fedfeast.recipes.recipe import Recipe, load_recipe, resolve_recipe
from fedfeast.recipes.suitability import SEARCHED
from fedfeast.runs.checkpoint import CheckpointFolder
from fedfeast.runs.kept.builder import KeptBuilder
from fedfeast.runs.kept.data import KeptData
from fedfeast.runs.kept.examples import KeptExamples
from fedfeast.runs.kept.statistics import KeptStatistics
from fedfeast.runs.well_formed import misfit_released, misfit_round, misfit_summary
from fedfeast.variants import write_cache
from fedfeast.version import VERSION
from fedfeast.whole_files import write_bytes, write_json, write_text

# Settings that a run may go on with others of: where its data lie, and what is measured of its rounds for people; of a
# fleet, for whom it waits and what it refuses.
MAY_CHANGE = {"data.folder", "engine.memory_gib", "evaluation.sizes"}
MAY_CHANGE_ON_A_FLEET = {
    "fleet.buffer",
    "fleet.deadline_seconds",
    "fleet.least_answers",
    "fleet.least_clients",
    "fleet.most_examples",
    "aggregation.refuse_multiple",
    "aggregation.weight_cap",
    "aggregation.weigh",
}


# Settings of a recipe that may name files, and under which name a run keeps its own copy of each.
NAMED_FILES = {
    "population.file": "population.file.csv",
    "variants.cache": "variants.cache.csv",
    "partition.file": "partition.file",
    "data.split_file": "data.split_file",
    "simulation.speeds": "simulation.speeds.csv",
}


class RunFolder:
    """Where a run's recipe, environment, clients, metrics, checkpoints and summary lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoints")
        self.kept_data = KeptData(path / "inputs" / "data.json")
        self.kept_builder = KeptBuilder(path / "inputs" / "builder.json")
        self.kept_statistics = KeptStatistics(path / "statistics.safetensors")
        self.kept_examples = KeptExamples(path / "test_examples.safetensors")

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run."""
        if not (path / "recipe.toml").is_file():
            raise InvalidInput(
                f"{path} is no run folder (it has no recipe.toml): give the --out folder of a train command."
            )
        return cls(path)

    @classmethod
    def create(
        cls,
        path: Path,
        recipe: Recipe,
        threads: int,
        device: str,
        processes: int = 1,
        engine: str = "eager, float32",
    ) -> "RunFolder":
        """Start a run in a new or empty folder, or reopen it where it holds the same recipe."""
        if path.exists() and not path.is_dir():
            raise InvalidInput(f"--out {path} is a file: give a folder.")
        folder = cls(path)
        recipe = folder.as_it_began(recipe)
        if not folder.holds(recipe):
            unknown = path.is_dir() and not (path / "recipe.toml").is_file()
            if unknown and any(not _is_of_a_killed_start(file) for file in path.iterdir()):
                raise InvalidInput(f"--out {path} holds other files and no run: give a new or an empty folder.")
            refuse_bad_files(recipe)  # before the run has copies, which messages would name and a second try find
            path.mkdir(parents=True, exist_ok=True)
            with folder.locked():
                folder._begin(recipe, _environment(threads, device, processes, engine))
            return folder
        if (path / "recipe.toml").read_text() != recipe.to_toml():  # the data may have moved to another folder
            with folder.locked():
                write_text(path / "recipe.toml", recipe.to_toml())
        if not (path / "environment.json").is_file():
            with folder.locked():
                write_json(path / "environment.json", _environment(threads, device, processes, engine))
        else:
            folder._note_changes(threads, device, processes, engine)
        return folder

    def _begin(self, recipe: Recipe, environment: Mapping[str, Any]) -> None:
        """Write what a run begins with, unless another process just did; the recipe last: it says that all is there."""
        if self.holds(recipe):
            return
        (self.path / "clients.csv").unlink(missing_ok=True)
        self._copy_inputs(recipe)
        write_json(self.path / "environment.json", environment)
        write_text(self.path / "recipe.toml", recipe.to_toml())

    def _note_changes(self, threads: int, device: str, processes: int, engine: str) -> None:
        """Record where a run goes on with other processes or another engine than it had."""
        written = self.environment()
        changed: dict[str, Any] = {}
        if written.get("processes", 1) != processes:
            # Other processes share the cores otherwise; the same number keeps its threads and with them its bits.
            changed = {"threads": threads, "processes": processes}
        if written.get("engine", engine) != engine:
            earlier = {"engine": written["engine"], "device": written["device"]}
            history = [*written.get("earlier", []), earlier]
            changed |= {"engine": engine, "device": device_name(device), "earlier": history}
        if changed:
            with self.locked():
                write_json(self.path / "environment.json", {**written, **changed})

    def recipe(self) -> Recipe:
        """Return the resolved recipe, with the run's own copies of the files it names."""
        settings = {key: str(copy) for key, copy in self._inputs().items() if copy.is_file()}
        recipe = self._load_recipe(settings)
        if recipe.population.source == "fleet" and (self.path / "clients.csv").is_file():
            # The clients of a fleet are those that joined the run.
            return self._load_recipe({**settings, "population.file": str(self.path / "clients.csv")})
        return recipe

    def environment(self) -> dict[str, Any]:
        """Return versions and hardware of the run's start, its processes and the threads of each."""
        remedy = "delete it, and the next training writes it anew"
        content = self._read_json("environment.json", ("threads", "libraries"), remedy)
        if not isinstance(content["threads"], int) or not 1 <= content["threads"] <= 1024:
            raise InvalidInput(f"{self.path / 'environment.json'} has threads = {content['threads']!r}: {remedy}.")
        return content

    def how_to_go_on(self) -> str:
        """Say how an unfinished run is trained on."""
        if self._load_recipe().population.source == "fleet":
            return "start its fleet again with flwr run, as docs/fleet.md says"
        return f"train on with fedfeast train {self.path / 'recipe.toml'} --out {self.path}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from training in the same folder."""
        busy = f"another process is training in {self.path}: wait for it, or give another --out folder."
        with held_alone(self.path / ".lock", busy, leave_file=True):
            yield

    def append_metrics(self, row: Mapping[str, Any]) -> int:
        """Add one line to metrics.jsonl; return the file's size afterwards."""
        return self._append_line("metrics.jsonl", row)

    def sync_metrics(self) -> None:
        """Wait until the rows of metrics.jsonl are on the disk: not after every round, which would wait too."""
        with (self.path / "metrics.jsonl").open("a") as file:
            os.fsync(file.fileno())

    def cut_metrics(self, size: int) -> None:
        """Cut metrics.jsonl back to the rounds of a checkpoint."""
        metrics = self.path / "metrics.jsonl"
        metrics.touch()
        if metrics.stat().st_size < size:
            raise InvalidInput(
                f"{metrics} is shorter than its checkpoint says ({metrics.stat().st_size} of {size} bytes): "
                "restore it, or start again in another --out folder."
            )
        os.truncate(metrics, size)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl, one per finished round."""
        return self._read_lines(self.path / "metrics.jsonl", misfit_round)

    def append_released(self, round_index: int, clients: Sequence[int]) -> None:
        """Note, before they are asked, whom a fleet's round asks for a private update: it counts whatever follows."""
        self._append_line("released.jsonl", {"round": round_index + 1, "clients": list(clients)}, sync=True)

    def append_release(self, round_index: int, rate: float) -> None:
        """Note a fleet's round before its noisy sum is made: repeated, it has other noise, and counts again."""
        self._append_line("released.jsonl", {"round": round_index + 1, "sampling_rate": rate}, sync=True)

    def releases(self, rate: float, finished_rounds: int) -> Counter[float]:
        """Return how many noisy sums were made, by the chance with which a client was part of one.

        A simulation's noise is named, so that a repeated round is the same one: it has those of its finished rounds.
        """
        rows = self._released_rows()
        # A line without its chance is no line of ours: certain to be drawn is the worst that it can mean.
        return Counter(row.get("sampling_rate", 1.0) for row in rows) if rows else Counter({rate: finished_rounds})

    def mend_released(self) -> None:
        """Cut off a line that was not finished, so that nobody was asked by it; refuse a file that is damaged.

        To be done before training goes on: a line added to an unfinished one would spoil both.
        """
        asked = self.path / "released.jsonl"
        self.check_released()
        content = asked.read_bytes() if asked.is_file() else b""
        finished = content.rfind(b"\n") + 1
        if finished < len(content):
            os.truncate(asked, finished)

    def check_released(self) -> None:
        """Refuse a file of a fleet's private updates that lacks a round: more was spent than it says."""
        asked = self.path / "released.jsonl"
        if not asked.is_file():
            return
        missing = {row["round"] for row in self.metrics()} - {row["round"] for row in self._released_rows()}
        if missing:
            raise InvalidInput(
                f"{asked} is cut off: round {min(missing)} is missing in it, whose privacy was spent; restore it, or "
                "start again in another --out folder."
            )

    def released(self) -> Counter[int]:
        """Return how many private updates each client of a fleet was asked for, in rounds that were repeated too."""
        return Counter(client for row in self._released_rows() for client in row.get("clients", []))

    def _released_rows(self) -> list[dict[str, Any]]:
        asked = self.path / "released.jsonl"
        return self._read_lines(asked, misfit_released) if asked.is_file() else []

    def write_clients(self, columns: Mapping[str, Any], again: bool = False) -> None:
        """Write clients.csv, one row per client; once, unless it is to be written again."""
        if again or not (self.path / "clients.csv").is_file():
            self._write_csv("clients.csv", list(columns), zip(*columns.values(), strict=True))

    def clients(self) -> list[dict[str, str]]:
        """Return the rows of clients.csv."""
        try:
            with (self.path / "clients.csv").open(newline="") as file:
                rows = list(csv.DictReader(file, strict=True))
            for row in rows:
                if row["name"] is None or not 0 < float(row["budget_macs"]) < np.inf or None in row:
                    raise ValueError(row["budget_macs"])
                for column in ("num_examples", "target_share", "realized_share"):
                    if not 0 <= float(row[column]) < np.inf:
                        raise ValueError(row[column])
        except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
            raise InvalidInput(
                f"{self.path / 'clients.csv'} is missing or damaged: delete it, then {self.how_to_go_on()}."
            ) from error
        return rows

    def budgets_macs(self) -> np.ndarray:
        """Return the clients' budgets."""
        budgets = np.array([float(row["budget_macs"]) for row in self.clients()])
        if not len(budgets):
            raise InvalidInput(f"{self.path / 'clients.csv'} is empty: delete it, then {self.how_to_go_on()}.")
        return budgets

    def write_summary(self, summary: Mapping[str, Any], curve: Curve) -> None:
        """Write summary.json and the curve as a table."""
        table = curve.table()
        self._write_csv("curve.csv", list(table[0]), (row.values() for row in table))
        write_json(self.path / "summary.json", {**summary, **curve.facts(), "curve": curve.rows()})

    def write_client_values(self, measured: Mapping[str, Measured]) -> None:
        """Write what every network comes to on each client's test examples: a row per test set and client."""
        names = [cost.name for cost in next(iter(measured.values())).costs]
        rows = (
            (test_set, client, *("" if np.isnan(value) else value for value in values))
            for test_set, one in measured.items()
            for client, values in zip(one.clients, one.client_values.T.tolist(), strict=True)
        )
        self._write_csv("test_clients.csv", ["test_set", "client", *names], rows)

    def client_values(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Return the rows of test_clients.csv: by test set and client every network's value, least MACs first."""
        path, found = self.path / "test_clients.csv", dict[str, dict[str, tuple[float, ...]]]()
        try:
            with path.open(newline="") as file:
                _, *rows = csv.reader(file)
            for test_set, client, *values in rows:
                found.setdefault(test_set, {})[client] = tuple(float(value or "nan") for value in values)
        except (OSError, ValueError, csv.Error) as error:
            raise InvalidInput(f"{path} is missing or damaged: run fedfeast evaluate {self.path}.") from error
        return found

    def own_values(self) -> dict[str, tuple[float, ...]]:
        """Return every network's value on a client's own test examples, by client; none where nobody has any."""
        if not (self.path / "test_clients.csv").is_file():
            return {}
        return {client: values for by_client in self.client_values().values() for client, values in by_client.items()}

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        if not self.has_summary():
            raise InvalidInput(f"{self.path} has no summary yet: run fedfeast evaluate {self.path}.")
        remedy = f"run fedfeast evaluate {self.path}"
        content = self._read_json("summary.json", ("curve", "finished_rounds"), remedy)
        wrong = misfit_summary(content)
        if wrong is not None:
            raise InvalidInput(f"{self.path / 'summary.json'} is damaged ({wrong}): {remedy}.")
        return content

    def summarised_rounds(self) -> int | None:
        """Return after how many rounds the summary was made; None where there is no whole one."""
        try:
            return int(self.summary()["finished_rounds"])
        except InvalidInput:
            return None

    def has_summary(self) -> bool:
        """Return whether the test curve was measured."""
        return (self.path / "summary.json").is_file()

    def has_finished_rounds(self) -> bool:
        """Return whether there is any round to speak of."""
        metrics = self.path / "metrics.jsonl"
        return metrics.is_file() and metrics.stat().st_size > 0

    def curve(self) -> Curve:
        """Return the measured curve on the test set."""
        summary = self.summary()
        return Curve.read(summary["curve"], summary)

    def test_sets(self) -> dict[str, Curve]:
        """Return the curve on every test set by its name, where the run has several."""
        summary = self.summary()
        return {name: Curve.read(one["curve"], summary) for name, one in summary.get("test_sets", {}).items()}

    def holds(self, recipe: Recipe) -> bool:
        """Return whether the folder holds this recipe's run; another's is refused, unless it finished no round."""
        if not (self.path / "recipe.toml").is_file():
            return False
        ours, theirs = recipe.settings(), self._load_recipe().settings()
        may_change = MAY_CHANGE | (MAY_CHANGE_ON_A_FLEET if recipe.population.source == "fleet" else set())
        different = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key) and key not in may_change]
        other_inputs = bool(self.kept_data.changed_files(recipe.data)) or self.kept_builder.is_other(recipe)
        changed = self._changed_inputs(recipe)
        if not different and not other_inputs and not changed:
            return True
        if not (self.has_finished_rounds() or self.checkpoints.exist()):
            return False
        if not different:
            if changed:
                raise InvalidInput(
                    f"{changed[0]} has changed since the run in {self.path} began: restore it, or give another --out "
                    "folder."
                )
            self.kept_data.refuse_other(recipe.data)
            self.kept_builder.refuse_other(recipe)
        changes = ", ".join(f"{key} is {theirs.get(key)!r} there and {ours.get(key)!r} here" for key in different[:3])
        raise InvalidInput(
            f"--out {self.path} holds another run ({changes}): give another folder, or the same settings to go on."
        )

    def as_it_began(self, recipe: Recipe) -> Recipe:
        """Return the recipe; what nobody gave is as the folder's run has it: new defaults, sizes to follow."""
        if not (self.path / "recipe.toml").is_file():
            return recipe
        kept, given = self._load_recipe(), recipe.method.model_fields_set
        former = find_method(recipe.method_name).former_defaults if kept.method_name == recipe.method_name else {}
        table = kept.method.model_dump()
        changed = {f"method.{key}": value for key, value in former.items() if key not in given and table[key] == value}
        began = resolve_recipe(recipe, changed)
        if began.evaluation.sizes != "auto":
            return began
        sizes = began.evaluation.model_copy(update={"sizes": kept.evaluation.sizes})
        return began.model_copy(update={"evaluation": sizes})

    def _load_recipe(self, settings: Mapping[str, Any] | None = None) -> Recipe:
        path = self.path / "recipe.toml"
        return load_recipe(
            str(path), {**_options_not_yet_known(path), **(settings or {})}, self.kept_data.facts(), tell=False
        )

    def _inputs(self) -> dict[str, Path]:
        """Return where the run keeps its own copies of files that a recipe names, by setting."""
        return {key: self.path / "inputs" / name for key, name in NAMED_FILES.items()}

    def _named_inputs(self, recipe: Recipe) -> Iterator[tuple[Path, Path]]:
        """Yield every existing file that the recipe names, and its place in the run folder."""
        settings = recipe.settings()
        for key, copy in self._inputs().items():
            if key in settings and Path(str(settings[key])).is_file():
                yield Path(str(settings[key])), copy

    def _copy_inputs(self, recipe: Recipe) -> None:
        """Copy the named files, so that a later change of them cannot change the run."""
        for copy in self._inputs().values():
            copy.unlink(missing_ok=True)
        self.kept_data.forget()
        self.kept_data.keep(recipe.data)
        self.kept_builder.keep(recipe)
        for named, copy in self._named_inputs(recipe):
            copy.parent.mkdir(exist_ok=True)
            write_bytes(copy, named.read_bytes())
        if recipe.variants.cache == SEARCHED:
            # Kept as a file, so that a later version's search cannot change what the run trains.
            network = build_network(recipe)
            copy = self._inputs()["variants.cache"]
            copy.parent.mkdir(exist_ok=True)
            write_cache(build_cache(recipe, network), network, copy)

    def _changed_inputs(self, recipe: Recipe) -> list[Path]:
        """Return the files that the recipe names and that are no longer what the run has copies of."""
        return [
            named
            for named, copy in self._named_inputs(recipe)
            if copy.is_file() and named.resolve() != copy.resolve() and named.read_bytes() != copy.read_bytes()
        ]

    def _read_json(self, name: str, keys: Sequence[str], remedy: str) -> dict[str, Any]:
        """Read one of the folder's JSON files; a damaged one is said with its remedy."""
        try:
            content = json.loads((self.path / name).read_text())
            if isinstance(content, dict) and all(key in content for key in keys):
                return content
        except (OSError, ValueError):
            pass
        raise InvalidInput(f"{self.path / name} is missing or damaged: {remedy}.")

    def _append_line(self, name: str, row: Mapping[str, Any], sync: bool = False) -> int:
        """Add a line to a file, whole or not at all; return the file's size afterwards."""
        with (self.path / name).open("ab", buffering=0) as file:
            size, line = file.tell(), f"{json.dumps(row)}\n".encode()
            try:
                written = file.write(line)
                if written < len(line):
                    file.write(line[written:])  # a disk that is full takes a part first, and says so then
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
            return size + len(line)

    def _read_lines(self, path: Path, misfit: Callable[[Any], str | None]) -> list[dict[str, Any]]:
        """Return the rows of a file of JSON lines; one that was never finished is left out."""
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
        for number, line in enumerate(lines, start=1):
            try:
                wrong = misfit(json.loads(line))
            except (ValueError, RecursionError):
                wrong = "it is no JSON"
            if wrong is not None:
                raise InvalidInput(
                    f"line {number} of {path} is damaged ({wrong}): restore it, or start again in another --out folder."
                )
        return [json.loads(line) for line in lines]

    def _write_csv(self, name: str, header: list[str], rows: Any) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        write_text(self.path / name, text.getvalue())


def _is_of_a_killed_start(file: Path) -> bool:
    """Return whether a start that was killed leaves such a file, which is no reason to refuse the next one."""
    return file.name in (".lock", "inputs", "environment.json") or file.suffix == ".partial"


def _environment(threads: int, device: str, processes: int, engine: str) -> dict[str, Any]:
    libraries = ("torch", "numpy", "scikit-learn", "pydantic", "safetensors")
    return {
        "fedfeast": VERSION,
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in libraries},
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "processes": processes,
        "threads": threads,
        "device": device_name(device),
        "engine": engine,
    }


def _options_not_yet_known(path: Path) -> dict[str, Any]:
    """Return what a run does in options that its version did not know: what was done before them."""
    try:
        recipe = tomllib.loads(path.read_text())
        unknown = {} if "sizes" in recipe.get("evaluation", {}) else {"evaluation.sizes": "none"}
    except (OSError, TypeError, ValueError):
        return {}  # reading it as a recipe says what is wrong
    try:
        table = recipe["method"]
        method = METHODS[table["name"]]  # nobody's own has former defaults
    except (KeyError, TypeError):
        return unknown
    # An option that is None is not written down: its absence says nothing of the version.
    written = {field.name for field in fields(method) if field.default is not None}  # type: ignore[arg-type]
    former = method.former_defaults.items()
    return unknown | {f"method.{key}": value for key, value in former if key in written and key not in table}
