"""The tightest depth-width envelope of an affordable set (Sec. 3.3, Eq. 4)."""

from collections.abc import Sequence
from typing import Any

from fedfeast.networks import ElasticNetwork
from fedfeast.variants import Variant


def envelope_of(variants: Sequence[Variant], network: ElasticNetwork) -> Any:
    """Return the architecture whose tensors hold all of the variants: for the elastic ResNet d*, w*."""
    return network.envelope([variant.architecture for variant in variants])
