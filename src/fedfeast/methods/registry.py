"""Methods by name: those that ship with the package, and a user's own by file or module."""

from fedfeast.errors import InvalidInput
from fedfeast.federation import Method
from fedfeast.methods.controls.fedavg import FedAvg
from fedfeast.methods.depth.depthfl import DepthFL
from fedfeast.methods.depth.nefl import NeFL
from fedfeast.methods.depth.scalefl import ScaleFL
from fedfeast.methods.supernet.feast import Feast
from fedfeast.methods.supernet.federated_nas import DeepFedNas, SuperFedNas
from fedfeast.methods.supernet.fedsup import EFedSup, FedSup
from fedfeast.methods.supernet.nested import Nested
from fedfeast.methods.width.fedrolex import FedRolex
from fedfeast.methods.width.fiarse import Fiarse
from fedfeast.methods.width.fjord import FjORD
from fedfeast.methods.width.heterofl import HeteroFL
from fedfeast.methods.width.splitmix import SplitMix
from fedfeast.own_code import find_named

METHODS: dict[str, type[Method]] = {
    "feast": Feast,
    "heterofl": HeteroFL,
    "scalefl": ScaleFL,
    "fiarse": Fiarse,
    "superfednas": SuperFedNas,
    "deepfednas": DeepFedNas,
    "fjord": FjORD,
    "fedrolex": FedRolex,
    "nested": Nested,
    "fedsup": FedSup,
    "efedsup": EFedSup,
    "depthfl": DepthFL,
    "nefl": NeFL,
    "splitmix": SplitMix,
    "fedavg": FedAvg,
}


def find_method(name: str) -> type[Method]:
    """Return a method of the package, or a user's own named ``file.py:Class`` or ``module:Class``."""
    method = find_named(name, METHODS, "method.name", "file.py:Class")
    if not (isinstance(method, type) and issubclass(method, Method)):
        source, _, class_name = name.rpartition(":")
        raise InvalidInput(f"method.name = {name!r}: {source} has no class {class_name} derived from Method.")
    return method
