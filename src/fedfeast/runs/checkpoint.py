"""Checkpoints: a run's state after a finished round, hashed, two generations kept."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import State
from fedfeast.runs.files import sha256_of, write_text, write_whole

KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, eq=False)
class Best:
    """The weights with the best validation population score so far."""

    finished_rounds: int
    score: float
    flat: Tensor


@dataclass(frozen=True, eq=False)
class TrainingState:
    """All that training carries from round to round."""

    finished_rounds: int
    flat: Tensor
    method_state: State = field(default_factory=dict)
    best: Best | None = None
    metrics_bytes: int = 0  # of metrics.jsonl that belong to the finished rounds


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
                self._write(best_name, {"weights": state.best.flat}, score)
        tensors = {"weights": state.flat} | {f"state.{key}": value for key, value in state.method_state.items()}
        metadata = {
            "finished_rounds": str(state.finished_rounds),
            "metrics_bytes": str(state.metrics_bytes),
            "best": best_name,
        }
        self._write(f"round-{state.finished_rounds:06d}.safetensors", tensors, metadata)
        self._forget_old()

    def load_latest(self) -> tuple[TrainingState | None, list[str]]:
        """Return the newest whole checkpoint and the names of damaged newer ones; None if there is none at all."""
        names = self._checkpoint_names()
        for position, name in enumerate(names):
            metadata = self._metadata(name)
            if metadata is not None and (not metadata["best"] or self._is_whole(metadata["best"])):
                return self._load(name, metadata), names[:position]
        if names:
            raise InvalidInput(
                f"every checkpoint in {self.folder} is damaged ({', '.join(names)}): restore one from a backup, "
                "or start again in another --out folder."
            )
        return None, []

    def _checkpoint_names(self) -> list[str]:
        """Return the finished checkpoints, newest first; one without a hash file was never finished."""
        files = sorted(self.folder.glob("round-*.safetensors"), reverse=True)
        return [file.name for file in files if self._hash_file(file.name).is_file()]

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
            )
        return TrainingState(
            finished_rounds=int(metadata["finished_rounds"]),
            flat=tensors.pop("weights"),
            method_state={key.removeprefix("state."): value for key, value in tensors.items()},
            best=best,
            metrics_bytes=int(metadata["metrics_bytes"]),
        )

    def _write(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        path = self.folder / name
        self._hash_file(name).unlink(missing_ok=True)  # an old hash must not vouch for a new file
        on_host = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
        write_whole(path, lambda temporary: save_file(on_host, temporary, {"fedfeast": json.dumps(dict(metadata))}))
        write_text(self._hash_file(name), f"{sha256_of(path)}  {name}\n")

    def _metadata(self, name: str) -> dict[str, str] | None:
        """Return what a file says of itself, or None if it is damaged."""
        if not self._is_whole(name):
            return None
        try:
            with safe_open(self.folder / name, framework="pt") as file:
                content: dict[str, str] = json.loads(file.metadata()["fedfeast"])
                return content
        except (SafetensorError, KeyError, ValueError):
            return None

    def _tensors(self, name: str) -> dict[str, Tensor]:
        with safe_open(self.folder / name, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping

    def _is_whole(self, name: str) -> bool:
        path, hash_file = self.folder / name, self._hash_file(name)
        return path.is_file() and hash_file.is_file() and hash_file.read_text().split()[:1] == [sha256_of(path)]

    def _hash_file(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    def _forget_old(self) -> None:
        kept = self._checkpoint_names()[:KEPT_CHECKPOINTS]
        for name in tuple(kept):
            metadata = self._metadata(name)
            if metadata is not None:
                kept.append(metadata["best"])
        for file in self.folder.glob("*.safetensors"):
            if file.name not in kept:
                self._hash_file(file.name).unlink(missing_ok=True)
                file.unlink()
