"""One file a paper, in folders by what is cut; a new method is one file and one line in METHODS."""

import sys
from importlib import import_module

from fedfeast.methods.controls.fedavg import FedAvg as FedAvg
from fedfeast.methods.depth.depthfl import DepthFL as DepthFL
from fedfeast.methods.depth.nefl import NeFL as NeFL
from fedfeast.methods.depth.scalefl import ScaleFL as ScaleFL
from fedfeast.methods.registry import METHODS as METHODS
from fedfeast.methods.registry import find_method as find_method
from fedfeast.methods.supernet.feast import Feast as Feast
from fedfeast.methods.supernet.federated_nas import DeepFedNas as DeepFedNas
from fedfeast.methods.supernet.federated_nas import SuperFedNas as SuperFedNas
from fedfeast.methods.supernet.fedsup import EFedSup as EFedSup
from fedfeast.methods.supernet.fedsup import FedSup as FedSup
from fedfeast.methods.supernet.nested import Nested as Nested
from fedfeast.methods.width.fedrolex import FedRolex as FedRolex
from fedfeast.methods.width.fiarse import Fiarse as Fiarse
from fedfeast.methods.width.fjord import FjORD as FjORD
from fedfeast.methods.width.heterofl import HeteroFL as HeteroFL
from fedfeast.methods.width.splitmix import SplitMix as SplitMix

# Where modules stood while all methods were in one folder: programs and run folders that name those places still work.
_FORMER_PLACES = {
    "feast": "supernet.feast",
    "fedavg": "controls.fedavg",
    "federated_nas": "supernet.federated_nas",
    "fedrolex": "width.fedrolex",
    "fiarse": "width.fiarse",
    "fjord": "width.fjord",
    "heterofl": "width.heterofl",
    "importance": "width.importance",
    "nested": "supernet.nested",
    "scalefl": "depth.scalefl",
}
for _former, _now in _FORMER_PLACES.items():
    globals()[_former] = sys.modules[f"{__name__}.{_former}"] = import_module(f"{__name__}.{_now}")
