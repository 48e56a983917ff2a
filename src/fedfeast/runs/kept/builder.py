"""What a run keeps of the code that builds its network: the hash of its file, to notice another."""

import json
from pathlib import Path

from fedfeast.errors import InvalidInput
from fedfeast.networks.shipped import find_builder
from fedfeast.recipes.recipe import Recipe
from fedfeast.whole_files import write_json


class KeptBuilder:
    """The file of a run folder that says which builder the run began with; the package's own need none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, recipe: Recipe) -> None:
        """Write down the hash of a user's own builder."""
        self._path.unlink(missing_ok=True)
        digest = _digest(recipe)
        if digest is not None:
            self._path.parent.mkdir(exist_ok=True)
            write_json(self._path, {"builder": recipe.network.builder, "sha256": digest})

    def is_other(self, recipe: Recipe) -> bool:
        """Return whether the builder is not the one that the run began with; not where either is unknown."""
        kept, digest = self._read(), _digest(recipe)
        return kept is not None and digest is not None and kept != digest

    def refuse_other(self, recipe: Recipe) -> None:
        """Refuse a builder that is not the one the run began with: its weights would mean something else."""
        if self.is_other(recipe):
            raise InvalidInput(
                f"network.builder = {recipe.network.builder!r} has changed since the run in "
                f"{self._path.parent.parent} began: restore its file, or train again in another --out folder."
            )

    def _read(self) -> str | None:
        try:
            return str(json.loads(self._path.read_text())["sha256"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{self._path} is damaged ({error!r}): delete it, or restore it.") from error


def _digest(recipe: Recipe) -> str | None:
    name = recipe.network.builder
    return find_builder(name).sha256 if name is not None and ":" in name else None
