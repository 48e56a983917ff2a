"""Cached variants as operating points."""

from collections.abc import Iterable

from fedfeast.federation import OperatingPoint
from fedfeast.variants import Variant


def cached_points(variants: Iterable[Variant]) -> tuple[OperatingPoint, ...]:
    """Return one operating point per variant, named by its MACs."""
    return tuple(
        OperatingPoint(format_macs(variant.macs), variant.macs, variant.parameters, variant.architecture)
        for variant in variants
    )


def format_macs(macs: float) -> str:
    """Return MACs for people, e.g. 24.97M or 412.3k."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if macs >= scale:
            return f"{macs / scale:.4g}{unit}"
    return f"{macs:.0f}"
