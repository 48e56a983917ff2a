"""The served statistics that a run's clients gave, for networks that leave it when the clients are gone."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.normalisation import Statistics
from fedfeast.runs.checkpoint import write_tensors

PARTS = ("mean", "variance")


class KeptStatistics:
    """The file of a run folder that has mean and variance of every norm layer of every network, by round."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, finished_rounds: int, statistics: Mapping[str, Statistics]) -> None:
        """Keep the statistics of the weights after a round, by network; networks without norm layers need none."""
        tensors = {
            f"{place}/{part}/{layer}": tensor.cpu().contiguous()
            for place, layers in enumerate(statistics.values())
            for layer, both in layers.items()
            for part, tensor in zip(PARTS, both, strict=True)
        }
        content = json.dumps({"finished_rounds": finished_rounds, "networks": list(statistics)})
        write_tensors(self._path, tensors, content)

    def load(self, finished_rounds: int, device: torch.device | None = None) -> dict[str, Statistics]:
        """Return the statistics by network; none where they were not kept or are of another round."""
        if not self._path.is_file():
            return {}
        try:
            with safe_open(self._path, framework="pt") as file:
                content = json.loads(file.metadata()["fedfeast"])
                tensors = {key: file.get_tensor(key).to(device) for key in file.keys()}  # noqa: SIM118 - not a mapping
            if content["finished_rounds"] != finished_rounds:
                return {}
            found: dict[str, dict[str, tuple[Tensor, Tensor]]] = defaultdict(dict)
            for key, mean in tensors.items():
                place, part, layer = key.split("/", 2)
                if part == PARTS[0]:
                    found[content["networks"][int(place)]][layer] = mean, tensors[f"{place}/{PARTS[1]}/{layer}"]
        except (SafetensorError, KeyError, ValueError, TypeError, IndexError) as error:
            raise InvalidInput(
                f"{self._path} is damaged ({error!r}): delete it, and the server's own examples stand in."
            ) from error
        return dict(found)
