"""The tightest depth-width envelope of an affordable set (Sec. 3.3, Eq. 4)."""

from collections.abc import Sequence

from fedfeast.networks import Architecture, SearchSpace
from fedfeast.variants import Variant


def envelope_of(variants: Sequence[Variant], space: SearchSpace) -> Architecture:
    """Return d*, w* as an architecture whose tensors hold every expansion the space allows."""
    architectures = [variant.architecture for variant in variants]
    depths = tuple(map(max, zip(*(a.depths for a in architectures), strict=True)))
    width_indices = tuple(map(max, zip(*(a.width_indices for a in architectures), strict=True)))
    return space.envelope(depths, width_indices)
