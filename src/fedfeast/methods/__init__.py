"""One file a paper; a new method is one file and one line in METHODS."""

from fedfeast.methods.depth.depthfl import DepthFL as DepthFL
from fedfeast.methods.depth.nefl import NeFL as NeFL
from fedfeast.methods.feast import Feast as Feast
from fedfeast.methods.fedavg import FedAvg as FedAvg
from fedfeast.methods.federated_nas import DeepFedNas as DeepFedNas
from fedfeast.methods.federated_nas import SuperFedNas as SuperFedNas
from fedfeast.methods.fedrolex import FedRolex as FedRolex
from fedfeast.methods.fiarse import Fiarse as Fiarse
from fedfeast.methods.fjord import FjORD as FjORD
from fedfeast.methods.heterofl import HeteroFL as HeteroFL
from fedfeast.methods.nested import Nested as Nested
from fedfeast.methods.registry import METHODS as METHODS
from fedfeast.methods.registry import find_method as find_method
from fedfeast.methods.scalefl import ScaleFL as ScaleFL
from fedfeast.methods.supernet.fedsup import EFedSup as EFedSup
from fedfeast.methods.supernet.fedsup import FedSup as FedSup
from fedfeast.methods.width.splitmix import SplitMix as SplitMix
