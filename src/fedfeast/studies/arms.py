"""The arms of a study: what is called how, and in which settings it differs from the study's base recipe."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

LABELS = MappingProxyType(
    {
        "feast": "FEAST",
        "heterofl": "HeteroFL",
        "scalefl": "ScaleFL",
        "fiarse": "FIARSE",
        "superfednas": "SuperFedNAS",
        "deepfednas": "DeepFedNAS",
        "fjord": "FjORD",
        "fedrolex": "FedRolex",
        "nested": "nested sampling",
        "fedsup": "FedSup",
        "efedsup": "E-FedSup",
        "depthfl": "DepthFL",
        "nefl": "NeFL",
        "splitmix": "Split-Mix",
        "fedavg": "FedAvg",
    }
)
# A method's number among series, and so its colour and mark, is the same in every picture of every version: new ones
# come at the end.
LOOKS = (
    "feast",
    "heterofl",
    "scalefl",
    "fiarse",
    "superfednas",
    "deepfednas",
    "fjord",
    "fedrolex",
    "nested",
    "fedavg",
    "fedsup",
    "efedsup",
    "depthfl",
    "nefl",
    "splitmix",
)
BASELINES = ("heterofl", "scalefl", "fiarse")  # the paper's weight-sharing baselines


@dataclass(frozen=True)
class Arm:
    """One line of a comparison."""

    name: str
    label: str
    settings: Mapping[str, Any]


def look_of(method: str, compared: Iterable[str]) -> int:
    """Return a method's number among series; methods from outside follow in the order in which they are compared."""
    return list(dict.fromkeys((*LOOKS, *compared, method))).index(method)


def method_arm(method: str, further: Mapping[str, Any] | None = None, suffix: str = "", label: str = "") -> Arm:
    """Return the arm of a method, with further settings, e.g. "feast, gamma 0.5"."""
    settings = {"method.name": method, **(further or {})}
    ending = f", {suffix}" if suffix else ""
    return Arm(f"{method}{ending}", label or f"{LABELS.get(method, method)}{ending}", settings)
