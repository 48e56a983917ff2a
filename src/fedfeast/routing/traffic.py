"""What routing saves against sending the full supernet (Sec. 3.3, communication accounting)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Traffic:
    """Parameters sent one way per client and round; a round trip is twice that either way."""

    full_parameters: int
    mean_payload: float
    reduction: float  # of the aggregate: full / mean payload
    per_client_mean: float
    per_client_median: float
    per_client_max: float


def count_traffic(payloads: Sequence[int], full_parameters: int) -> Traffic:
    """Summarise the payloads P_i of all clients against the full supernet's P parameters."""
    sizes = np.asarray(payloads, dtype=np.float64)
    reductions = full_parameters / sizes
    return Traffic(
        full_parameters=full_parameters,
        mean_payload=float(sizes.mean()),
        reduction=float(full_parameters / sizes.mean()),
        per_client_mean=float(reductions.mean()),
        per_client_median=float(np.median(reductions)),
        per_client_max=float(reductions.max()),
    )
