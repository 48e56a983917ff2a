"""Cached variants as operating points."""

from collections.abc import Iterable

from fedfeast.federation import OperatingPoint
from fedfeast.units import format_macs
from fedfeast.variants import Variant


def cached_points(variants: Iterable[Variant]) -> tuple[OperatingPoint, ...]:
    """Return one operating point per variant, named by its MACs."""
    return tuple(
        OperatingPoint(format_macs(variant.macs), variant.macs, variant.parameters, variant.architecture)
        for variant in variants
    )
