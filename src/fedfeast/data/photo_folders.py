"""A folder of photos that is trained on as it is: prepared once, found again while its files stay the same."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.data.reading.catalogue import EMBEDDED, OFFICIAL
from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.prepared import Progress, is_prepared, read_description
from fedfeast.data.reading.preparing import data_folder, list_photos, prepare_data

PHOTO_SIDE = 32  # pixels; fedfeast data prepare takes any other


@dataclass(frozen=True)
class PreparedPhotos:
    """Under which name a folder's photos are prepared, and what was said of them if that was just now."""

    name: str
    description: dict[str, Any] | None = None


def prepare_photos(
    photos: Path, folder: str | Path | None = None, on_progress: Progress | None = None
) -> PreparedPhotos:
    """Prepare a folder of CLASS/PHOTOS under its own name, unless the same files are prepared already.

    Other files under that name stay as they are, since runs may need them: the photos then get a name of their own.
    """
    data, listing = data_folder(folder), list_photos(photos)
    plain = _plain_name(photos)
    for name in (plain, f"{plain}-{listing[:8]}"):
        if not is_prepared(data / name):
            return PreparedPhotos(
                name, prepare_data(name, photos, data, PrepareOptions(PHOTO_SIDE), False, on_progress)
            )
        source = read_description(data / name).get("source", {})
        if (source.get("listing"), source.get("size"), source.get("seed")) == (listing, PHOTO_SIDE, 0):
            return PreparedPhotos(name)
    raise AssertionError("a name with the listing's own hash holds another listing")


def _plain_name(photos: Path) -> str:
    """Return a name for a data set after a folder's."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", photos.resolve().name).strip("-_.")[:48] or "photos"
    known = {re.sub(r"[^a-z0-9]", "", one.lower()) for one in (*EMBEDDED, *OFFICIAL)}
    return f"{name}-photos" if re.sub(r"[^a-z0-9]", "", name.lower()) in known else name
