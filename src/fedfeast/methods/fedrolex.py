"""FedRolex: HeteroFL whose windows of channels roll on by one every round (Alam et al., 2022)."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedfeast.methods.heterofl import HeteroFL
from fedfeast.networks import Network
from fedfeast.routing import ChosenSlices, SliceMap


@dataclass(frozen=True)
class FedRolex(HeteroFL):
    """Every client trains a window of each layer's channels; the windows move on so that all are trained alike.

    The paper evaluates the whole network alone. Choice: a smaller device is served the leading slice.
    """

    paper: ClassVar = "Alam et al., FedRolex: Model-Heterogeneous FL with Rolling Sub-Model Extraction, 2022"
    presets: ClassVar = {"released": HeteroFL.presets["released"]}  # FEAST's authors did not run it

    def slices_of(self, level: Hashable, round_index: int) -> SliceMap:
        """Return the window of a round: of each axis that the level narrows, so many channels from the round's on."""
        network: Network = self.network
        full = network.layout.shapes
        chosen = {
            name: tuple(
                _window(size, whole, round_index) for size, whole in zip(shape[:2], full[name][:2], strict=True)
            )
            for name, shape in network.shapes(level).items()
        }
        return ChosenSlices.of(network.layout, chosen)


def _window(size: int, whole: int, start: int) -> Tensor:
    """Return so many indices of a ring from the start on, sorted."""
    # Layers of equal width roll alike, so inputs follow outputs and shortcuts stay aligned.
    return ((start + torch.arange(size)) % whole).sort().values
