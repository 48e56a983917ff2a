"""One file a paper; a new method is one file and one line here."""

from fedfeast.federation import Method
from fedfeast.methods.fedavg import FedAvg as FedAvg
from fedfeast.methods.feast import Feast as Feast

METHODS: dict[str, type[Method]] = {"feast": Feast, "fedavg": FedAvg}
