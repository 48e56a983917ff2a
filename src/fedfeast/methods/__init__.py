"""One file a paper; a new method is one file and one line here."""

from fedfeast.federation import Method
from fedfeast.methods.feast import Feast as Feast
from fedfeast.methods.fedavg import FedAvg as FedAvg
from fedfeast.methods.federated_nas import DeepFedNas as DeepFedNas
from fedfeast.methods.federated_nas import SuperFedNas as SuperFedNas
from fedfeast.methods.fedrolex import FedRolex as FedRolex
from fedfeast.methods.fiarse import Fiarse as Fiarse
from fedfeast.methods.fjord import FjORD as FjORD
from fedfeast.methods.heterofl import HeteroFL as HeteroFL
from fedfeast.methods.scalefl import ScaleFL as ScaleFL

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
