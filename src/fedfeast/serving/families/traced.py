"""Networks that a method brings along: bundles carry a torch.export program of their forward pass."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfeast.data import DatasetFacts
from fedfeast.federation import Deployed
from fedfeast.networks.normalisation import ByStatistics, RecordingByBatch, Statistics
from fedfeast.serving.families.built import BuiltFamily, BuiltModel


class ForwardPass(nn.Module):
    """A network's forward pass, with its weights and served statistics as buffers."""

    def __init__(self, deployed: Deployed, statistics: Statistics) -> None:
        super().__init__()
        self._network, self._architecture = deployed.network, deployed.architecture
        # By numbers: names of buffers have no dots.
        self._weights = {name: f"weight{place}" for place, name in enumerate(deployed.weights)}
        self._means = {name: f"mean{place}" for place, name in enumerate(statistics)}
        self._variances = {name: f"variance{place}" for place, name in enumerate(statistics)}
        for name, view in deployed.weights.items():
            self.register_buffer(self._weights[name], _alone(view))
        for name, (mean, variance) in statistics.items():
            self.register_buffer(self._means[name], _alone(mean))
            self.register_buffer(self._variances[name], _alone(variance))

    def forward(self, normalised: Tensor) -> Tensor:
        """Return what is served: the last output."""
        weights = {name: self.get_buffer(buffer) for name, buffer in self._weights.items()}
        statistics = {
            name: (self.get_buffer(mean), self.get_buffer(self._variances[name])) for name, mean in self._means.items()
        }
        return self._network.forward(weights, normalised, self._architecture, ByStatistics(statistics))[-1]


@dataclass(frozen=True)
class TracedFamily(BuiltFamily):
    """Networks of which no more is known than how inputs pass through them."""

    name: str = "traced"
    trained: type = object

    def describe(self, network: Any, architecture: Any) -> dict[str, Any]:
        """Return the manifest's table of an architecture."""
        return {"family": self.name, "type": type(network).__name__}

    def model(self, deployed: Deployed, statistics: Statistics, table: dict[str, Any]) -> BuiltModel:
        """Return the network with the deployed weights and the served statistics."""
        return BuiltModel(ForwardPass(deployed, statistics), table)

    def passed_by_noise(self, deployed: Deployed, facts: DatasetFacts) -> BuiltModel:
        """Return a network with the statistics of noise, which takes normalised numbers or token ids."""
        tokens, recording = facts.kind == "tokens", RecordingByBatch()
        shape, dtype = (2, *facts.input_shape), torch.int64 if tokens else torch.float32
        noise = torch.zeros(shape, dtype=dtype) if tokens else torch.linspace(-1, 1, torch.Size(shape).numel())
        with torch.no_grad():
            deployed(noise.reshape(shape), recording)
        table = self.describe(deployed.network, deployed.architecture)
        table |= self.describe_input("tokens" if tokens else "numbers", facts.input_shape, dtype)
        if not tokens:
            channels = facts.input_shape[0]
            table |= {"mean": [0.0] * channels, "deviation": [1.0] * channels}
        return self.model(deployed, recording.statistics(torch.float32), table)


def _alone(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float().contiguous().clone()
