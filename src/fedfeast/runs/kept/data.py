"""What a run keeps of its prepared data: facts, to be read without them, and hashes, to notice others."""

import json
from dataclasses import asdict
from pathlib import Path

from fedfeast.data import EMBEDDED, DatasetFacts, array_hashes
from fedfeast.errors import InvalidInput
from fedfeast.recipes.sections import DataSection
from fedfeast.whole_files import write_json


class KeptData:
    """The file of a run folder that says which data the run began with; embedded data need none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def facts(self) -> DatasetFacts | None:
        """Return the facts of the run's data; None where they were not kept."""
        kept = self._read()
        return None if kept is None else kept[0]

    def keep(self, section: DataSection) -> None:
        """Write down the facts at once, and the hashes as soon as the data are prepared, once."""
        if section.name in EMBEDDED:
            return
        kept, hashes = self._read(), array_hashes(section.name, section.folder)
        if kept is None or (hashes and not kept[1]):
            self._path.parent.mkdir(exist_ok=True)
            write_json(self._path, {"facts": asdict(section.facts), "arrays": hashes})

    def forget(self) -> None:
        """Make room for another run's data."""
        self._path.unlink(missing_ok=True)

    def changed_files(self, section: DataSection) -> list[str]:
        """Return which prepared files are not those that the run began with; none where either is unknown."""
        kept, hashes = self._read(), array_hashes(section.name, section.folder)
        if kept is None or not kept[1] or not hashes:
            return []
        return sorted(file for file in {**kept[1], **hashes} if kept[1].get(file) != hashes.get(file))

    def refuse_other(self, section: DataSection) -> None:
        """Refuse data that are not those the run began with."""
        changed = self.changed_files(section)
        if changed:
            raise InvalidInput(
                f"the prepared data {section.name!r} have changed since the run in {self._path.parent.parent} began "
                f"({', '.join(changed)}): give another --out folder, or prepare the old data again."
            )

    def _read(self) -> tuple[DatasetFacts, dict[str, str]] | None:
        try:
            content = json.loads(self._path.read_text())
            return DatasetFacts(**content["facts"]), dict(content["arrays"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"{self._path} is damaged ({error!r}): delete it, and the next training writes it anew."
            ) from error
