"""Checkpoints: a run's state after a finished round, hashed, two generations kept."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import NormHistory, State, WireMemory
from fedfeast.federation.server_step import ServedVector
from fedfeast.whole_files import sha256_of, write_text, write_whole

KEPT_CHECKPOINTS = 2
_BEST_NAME = re.compile(r"(?:best-[0-9]+\.safetensors)?")


@dataclass(frozen=True, eq=False)
class Best:
    """The weights with the best validation score so far."""

    finished_rounds: int
    score: float
    flat: Tensor
    vector: ServedVector = "global"  # or the running average


@dataclass(frozen=True, eq=False)
class TrainingState:
    """All that training carries from round to round."""

    finished_rounds: int
    flat: Tensor
    method_state: State = field(default_factory=dict)
    best: Best | None = None
    metrics_bytes: int = 0  # of metrics.jsonl that belong to the finished rounds
    norm_history: NormHistory = field(default_factory=NormHistory)
    server_state: State = field(default_factory=dict)
    work: State = field(default_factory=dict)  # what simulated clients were at work on
    wire_memory: WireMemory = field(default_factory=WireMemory)


class CheckpointFolder:
    """The checkpoints of one run, each with its SHA-256 beside it in sha256sum's form."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: TrainingState) -> None:
        """Write the state, then forget checkpoints older than the last two."""
        self.folder.mkdir(exist_ok=True)
        best_name = ""
        if state.best is not None:
            best_name = f"best-{state.best.finished_rounds:06d}.safetensors"
            if not self._is_whole(best_name):
                score = {"finished_rounds": str(state.best.finished_rounds), "score": repr(state.best.score)}
                if state.best.vector != "global":
                    score["vector"] = state.best.vector
                self._write(best_name, {"weights": state.best.flat}, score)
        tensors = {"weights": state.flat} | {f"state.{key}": value for key, value in state.method_state.items()}
        tensors |= {f"server.{key}": value for key, value in state.server_state.items()}
        # Copies: a vector that somebody works on may be that of the weights.
        tensors |= {f"work.{key}": value.clone() for key, value in state.work.items()}
        tensors |= {f"wire.{key}": value for key, value in state.wire_memory.tensors().items()}
        if state.norm_history.medians:
            tensors["norms"] = torch.tensor(state.norm_history.medians, dtype=torch.float64)
        metadata = {
            "finished_rounds": str(state.finished_rounds),
            "metrics_bytes": str(state.metrics_bytes),
            "best": best_name,
        }
        self._write(f"round-{state.finished_rounds:06d}.safetensors", tensors, metadata)
        self._forget_old()

    def exist(self) -> bool:
        """Return whether anything was ever saved here."""
        return any(self.folder.glob("round-*.safetensors"))

    def load_latest(self) -> tuple[TrainingState | None, list[str]]:
        """Return the newest whole checkpoint, None if there is none at all, and the damaged files passed over."""
        names = self._checkpoint_names()
        metadata = {name: self._metadata(name) for name in names}
        whole = {name: one for name, one in metadata.items() if one is not None}
        damaged = [name for name in names if name not in whole]
        for name, one in whole.items():
            if not one["best"] or self._is_whole(one["best"]):
                newer = names[: names.index(name)]
                lost = [whole[other]["best"] for other in newer if other in whole]
                return self._load(name, one), [*(other for other in newer if other in damaged), *lost]
        for name, one in whole.items():  # every best is damaged: go on without one rather than not at all
            return self._load(name, {**one, "best": ""}), [*damaged, one["best"]]
        if names:
            raise InvalidInput(
                f"every checkpoint in {self.folder} is damaged ({', '.join(names)}): restore one from a backup, "
                "or start again in another --out folder."
            )
        return None, []

    def require_size(self, flat: Tensor, size: int) -> None:
        """Refuse weights that are not of this run's network."""
        if flat.shape != (size,):
            raise InvalidInput(
                f"the checkpoints in {self.folder} have {flat.numel()} weights and the recipe's network {size}: they "
                "are another run's; restore those of this one, or start again in another --out folder."
            )

    def _checkpoint_names(self) -> list[str]:
        """Return the finished checkpoints, newest first; one without a hash file was never finished."""
        files = sorted(self.folder.glob("round-*.safetensors"), reverse=True)
        finished = [file.name for file in files if self._hash_file(file.name).is_file()]
        if not finished and len(files) > 1:  # a first save that was killed leaves one file, not several
            raise InvalidInput(
                f"the hash files (.sha256) in {self.folder} are gone: restore them, or start in another --out folder."
            )
        return finished

    def _load(self, name: str, metadata: Mapping[str, str]) -> TrainingState:
        tensors = self._tensors(name)
        best = None
        if metadata["best"]:
            best_metadata = self._metadata(metadata["best"])
            assert best_metadata is not None
            best = Best(
                int(best_metadata["finished_rounds"]),
                float(best_metadata["score"]),
                self._tensors(metadata["best"])["weights"],
                "average" if best_metadata.get("vector") == "average" else "global",
            )
        norms = tensors.pop("norms", None)
        return TrainingState(
            finished_rounds=int(metadata["finished_rounds"]),
            flat=tensors.pop("weights"),
            method_state=_named(tensors, "state."),
            best=best,
            metrics_bytes=int(metadata["metrics_bytes"]),
            norm_history=NormHistory(() if norms is None else tuple(norms.tolist())),
            server_state=_named(tensors, "server."),
            work=_named(tensors, "work."),
            wire_memory=WireMemory.read(_named(tensors, "wire.")),
        )

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        path = self.folder / name
        self._hash_file(name).unlink(missing_ok=True)  # an old hash must not vouch for a new file
        on_host = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
        write_tensors(path, on_host, json.dumps(dict(metadata)))
        write_text(self._hash_file(name), f"{sha256_of(path)}  {name}\n")

    def _metadata(self, name: str) -> dict[str, str] | None:
        """Return what a file says of itself, or None if it is damaged."""
        if not self._is_whole(name):
            return None
        try:
            with safe_open(self.folder / name, framework="pt") as file:
                content: dict[str, str] = json.loads(file.metadata()["fedfeast"])
                _require_metadata(name, content)
                file.get_slice("weights")
                return content
        except (SafetensorError, KeyError, ValueError, TypeError):
            return None

    def _tensors(self, name: str) -> dict[str, Tensor]:
        with safe_open(self.folder / name, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping

    def _is_whole(self, name: str) -> bool:
        path, hash_file = self.folder / name, self._hash_file(name)
        return (
            path.is_file() and hash_file.is_file() and hash_file.read_bytes().split()[:1] == [sha256_of(path).encode()]
        )

    def _hash_file(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    def _forget_old(self) -> None:
        """Keep the last whole generations and their bests; what a killed save left behind goes too."""
        whole = {name: metadata for name in self._checkpoint_names() if (metadata := self._metadata(name)) is not None}
        kept = list(whole)[:KEPT_CHECKPOINTS]
        kept += [whole[name]["best"] for name in kept]
        for file in self.folder.glob("*.safetensors"):
            if file.name not in kept:
                self._hash_file(file.name).unlink(missing_ok=True)
                file.unlink()
        for file in self.folder.glob(".*.partial"):
            file.unlink()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], content: str) -> None:
    """Write a safetensors file whole, with words of ours; a full disk is the system's error, as for every file."""

    def save(temporary: Path) -> None:
        try:
            save_file(dict(tensors), temporary, {"fedfeast": content})
        except SafetensorError as error:
            found = re.search(r"\(os error ([0-9]+)\)", str(error))
            if found is None:
                raise
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from error

    write_whole(path, save)


def _require_metadata(name: str, content: Mapping[str, str]) -> None:
    """Refuse metadata, perhaps of somebody else's making, that training could not go on with."""
    counts = [int(content["finished_rounds"])]
    if name.startswith("best-"):
        float(content["score"])
    else:
        counts.append(int(content["metrics_bytes"]))
        if not _BEST_NAME.fullmatch(content["best"]):
            raise ValueError(f"{content['best']!r} is no name of a best checkpoint")
    if min(counts) < 0:
        raise ValueError("a count is negative")


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
