"""A user's own code, named as ``file.py:NAME`` or ``module:NAME`` in a setting."""

import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfeast.errors import InvalidInput


def find_own(source: str, setting: str) -> Any:
    """Return what the source names, or None where its file or module has no such thing."""
    place, _, name = source.rpartition(":")
    return getattr(_load(place, setting), name, None)


@cache
def _load(place: str, setting: str) -> ModuleType:
    """Import a file or a module; what its own code raises is the user's to see."""
    if not place.endswith(".py"):
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            raise InvalidInput(f"{setting} names the module {place!r}, which cannot be imported: {error}.") from error
    path = Path(place).resolve()
    spec = spec_from_file_location(f"fedfeast_own_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidInput(f"{setting} names the file {place}, which is no Python file: give its path.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
