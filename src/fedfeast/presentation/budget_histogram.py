"""The fleet as a picture needs it: budgets counted in bins, and how many clients each variant serves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 24


def budget_histogram(budgets_macs: np.ndarray, variant_macs: Sequence[int]) -> dict[str, Any]:
    """Return a histogram over a logarithmic axis, the share served, and the clients of each variant, least first."""
    least, greatest = float(budgets_macs.min()), float(budgets_macs.max())
    edges = np.geomspace(least * 0.98, greatest * 1.02, BINS + 1)
    counts, _ = np.histogram(budgets_macs, edges)
    by_variant = [0] * len(variant_macs)
    served = 0
    if variant_macs:
        affordable = np.searchsorted(variant_macs, budgets_macs, side="right")
        by_variant = np.bincount(affordable, minlength=len(variant_macs) + 1)[1:].tolist()
        served = sum(by_variant)
    return {
        "clients": len(budgets_macs),
        "served": served if variant_macs else None,
        "median_macs": float(np.median(budgets_macs)),
        "edges_macs": edges.tolist(),
        "counts": counts.tolist(),
        "by_variant": by_variant,
    }
