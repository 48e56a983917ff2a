"""FedRolex: HeteroFL whose windows of channels roll on by one every round (Alam et al., 2022)."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fedfeast.methods.width.heterofl import HeteroFL
from fedfeast.networks import Network
from fedfeast.routing import ChosenSlices, SliceMap


@dataclass(frozen=True)
class FedRolex(HeteroFL):
    """Every client trains a window of each layer's channels; the windows move on so that all are trained alike.

    The paper evaluates the whole network alone. Choice: a smaller device is served the leading slice.
    """

    suits: ClassVar = (
        "A large server network that few clients afford whole: windows reach weights that leading slices leave out."
    )

    paper: ClassVar = "Alam et al., FedRolex: Model-Heterogeneous FL with Rolling Sub-Model Extraction, 2022"
    presets: ClassVar = {"released": HeteroFL.presets["released"]}  # FEAST's authors did not run it

    def slices_of(self, level: Hashable, round_index: int) -> SliceMap:
        """Return the window of a round: of each axis that the level narrows, so many channels from the round's on."""
        if (level, round_index) not in self._windows:
            for past in [key for key in self._windows if key[1] != round_index]:
                del self._windows[past]
            self._windows[level, round_index] = self._window_of(level, round_index)
        return self._windows[level, round_index]

    @cached_property
    def _windows(self) -> dict[tuple[Hashable, int], SliceMap]:
        return {}

    def _window_of(self, level: Hashable, round_index: int) -> SliceMap:
        network: Network = self.network
        full = network.layout.shapes
        chosen = {
            name: tuple(_ring(size, whole, round_index) for size, whole in zip(shape[:2], full[name][:2], strict=True))
            for name, shape in network.shapes(level).items()
        }
        return ChosenSlices.of(network.layout, chosen)


def _ring(size: int, whole: int, start: int) -> Tensor:
    """Return so many indices of a ring from the start on, sorted."""
    # Layers of equal width roll alike, so inputs follow outputs and shortcuts stay aligned.
    return ((start + torch.arange(size)) % whole).sort().values
