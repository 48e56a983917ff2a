"""Methods by name: those that ship with the package, and a user's own by file or module."""

import sys
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from fedfeast.errors import InvalidInput
from fedfeast.federation import Method
from fedfeast.methods.feast import Feast
from fedfeast.methods.fedavg import FedAvg
from fedfeast.methods.federated_nas import DeepFedNas, SuperFedNas
from fedfeast.methods.fedrolex import FedRolex
from fedfeast.methods.fiarse import Fiarse
from fedfeast.methods.fjord import FjORD
from fedfeast.methods.heterofl import HeteroFL
from fedfeast.methods.scalefl import ScaleFL

METHODS: dict[str, type[Method]] = {
    "feast": Feast,
    "heterofl": HeteroFL,
    "scalefl": ScaleFL,
    "fiarse": Fiarse,
    "superfednas": SuperFedNas,
    "deepfednas": DeepFedNas,
    "fjord": FjORD,
    "fedrolex": FedRolex,
    "fedavg": FedAvg,
}


def find_method(name: str) -> type[Method]:
    """Return a method of the package, or a user's own named ``file.py:Class`` or ``module:Class``."""
    if name in METHODS:
        return METHODS[name]
    source, colon, class_name = name.rpartition(":")
    if not colon:
        close = get_close_matches(name, METHODS, n=3)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise InvalidInput(
            f"method.name = {name!r} is unknown{hint}: choose one of {', '.join(METHODS)}, "
            "or name your own as file.py:Class."
        )
    method = getattr(_load(source), class_name, None)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InvalidInput(f"method.name = {name!r}: {source} has no class {class_name} derived from Method.")
    return method


@cache
def _load(source: str) -> ModuleType:
    """Import a file or a module; what its own code raises is the user's to see."""
    if not source.endswith(".py"):
        try:
            return import_module(source)
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"method.name names the module {source!r}, which cannot be imported: {error}."
            ) from error
    path = Path(source).resolve()
    spec = spec_from_file_location(f"fedfeast_method_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidInput(f"method.name names the file {source}, which is no Python file: give its path.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
