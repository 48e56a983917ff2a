"""The families by name, and the way from a trained network to plain torch layers."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks import ElasticResNet, ResNet
from fedfeast.networks.ensemble import Ensemble
from fedfeast.networks.normalisation import Statistics
from fedfeast.serving.families import elastic_resnet, resnet
from fedfeast.serving.families.built import BuiltFamily
from fedfeast.serving.families.standalone import Model, fill, read_weights
from fedfeast.serving.families.traced import TracedFamily
from fedfeast.whole_files import write_text


@dataclass(frozen=True)
class Family:
    """A family of the package's own networks, as trained and as served."""

    name: str
    trained: type
    served: ModuleType
    describing: Callable[[Any, Any], dict[str, Any]] | None = None  # where it is not the file's own ``describe``

    def describe(self, network: Any, architecture: Any) -> dict[str, Any]:
        """Return the manifest's table of an architecture."""
        describing = self.describing or self.served.describe
        return {"family": self.name, **describing(network, architecture)}

    def describe_input(
        self, kind: str, shape: tuple[int, ...], dtype: torch.dtype, batch_norms: int = 0
    ) -> dict[str, Any]:
        """Return nothing: the table has the images' channels and size."""
        return {}

    def build(self, table: dict[str, Any]) -> nn.Module:
        """Return the module of a manifest's table, its weights not yet loaded."""
        module: nn.Module = self.served.Network(table)
        return module

    def source(self) -> str:
        """Return the file that bundles carry."""
        name = self.served.__name__.rpartition(".")[2]
        return resources.files("fedfeast.serving.families").joinpath(f"{name}.py").read_text(encoding="utf-8")

    def tensors(self, deployed: Deployed, statistics: Statistics) -> dict[str, Tensor]:
        """Return the deployed tensors under the names of plain torch layers, with the served statistics."""
        return state_dict_of(deployed, statistics)

    def model(self, deployed: Deployed, statistics: Statistics, table: dict[str, Any]) -> Model:
        """Return the network with the deployed weights and the served statistics."""
        return fill(self.build(table), table, self.tensors(deployed, statistics))

    def uncalibrated(self, deployed: Deployed) -> Model:
        """Return a network with made-up statistics."""
        table = self.describe(deployed.network, deployed.architecture)
        table |= {"mean": [0.5] * table["image_channels"], "deviation": [0.25] * table["image_channels"]}
        scales = {name: shape for name, shape in deployed.layout.shapes.items() if name.endswith(".scale")}
        norms = {name.removesuffix(".scale"): (torch.zeros(shape), torch.ones(shape)) for name, shape in scales.items()}
        return self.model(deployed, norms, table)

    def write(self, folder: Path, model: Model) -> list[str]:
        """Write the family's own file into a bundle; return its name."""
        write_text(folder / "network.py", self.source())
        return ["network.py"]

    def load(self, folder: Path, table: dict[str, Any]) -> Model:
        """Return a bundle's network, built by the package's own code."""
        tensors = read_weights(folder / "weights.safetensors")
        self._require_fit(table, tensors)
        return fill(self.build(table), table, tensors)

    def _require_fit(self, table: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Refuse a table whose network is another one than the weights', before any memory is taken for it."""
        blocks = sum(1 + int(stage["blocks"]) for stage in table["stages"]) * max(1, len(table.get("bases", [])))
        if blocks > len(tensors):
            raise ValueError(f"the table has {blocks} blocks and stages for {len(tensors)} tensors")
        with torch.device("meta"):
            expected = self.build(table).state_dict()
        for name, tensor in tensors.items():
            if name not in expected or expected[name].shape != tensor.shape:
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, and the table's network another")


AnyFamily = Family | BuiltFamily
PLAIN = (
    Family("elastic-resnet", ElasticResNet, elastic_resnet),
    Family("resnet", ResNet, resnet),
    Family("resnet-ensemble", Ensemble, resnet, resnet.describe_ensemble),
)
FAMILIES: dict[str, AnyFamily] = {family.name: family for family in (*PLAIN, BuiltFamily(), TracedFamily())}


def family_of(network: object) -> AnyFamily:
    """Return the family of a trained network."""
    return next(family for family in FAMILIES.values() if isinstance(network, family.trained))


def family_named(table: dict[str, Any]) -> AnyFamily:
    """Return the family that a manifest's table names."""
    name = table.get("family")
    if name not in FAMILIES:
        raise InvalidInput(f"the bundle's network family {name!r} is unknown: it needs another version of fedfeast.")
    return FAMILIES[name]


def state_dict_of(deployed: Deployed, statistics: Statistics) -> dict[str, Tensor]:
    """Return the deployed tensors under the names of plain torch layers, with the served statistics, in float32."""
    tensors = {}
    for name, view in deployed.layout.views(deployed.flat).items():
        stem, _, ending = name.rpartition(".")
        if ending in ("scale", "shift"):
            tensors[f"{stem}.{'weight' if ending == 'scale' else 'bias'}"] = view
        else:
            tensors[f"{name}.weight" if view.dim() == 4 else name] = view  # a convolution is named without an ending
    for name, (mean, variance) in statistics.items():
        tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"] = mean, variance
    return {name: tensor.cpu().float().contiguous() for name, tensor in tensors.items()}


def uncalibrated(deployed: Deployed, facts: DatasetFacts) -> Model:
    """Return a network with made-up statistics: as fast as the real one, and no data are needed."""
    family = family_of(deployed.network)
    return (
        family.passed_by_noise(deployed, facts) if isinstance(family, TracedFamily) else family.uncalibrated(deployed)
    )
