"""Units, and how they are written for people."""

from collections import Counter
from functools import lru_cache

GIB = 2**30  # bytes


def format_macs(macs: float, digits: int = 4) -> str:
    """Return MACs for people, e.g. 24.97M or 412.3k."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if macs >= scale:
            return f"{macs / scale:.{digits}g}{unit}"
    return f"{macs:.0f}"


@lru_cache(maxsize=64)  # a plan asks again for every client
def name_by_macs(macs: tuple[int, ...]) -> tuple[str, ...]:
    """Return a name for each of some costs: as people write them, with more digits where two look alike.

    Equal costs are numbered from the second one on.
    """
    digits = next(
        digits for digits in range(4, 20) if len({format_macs(one, digits) for one in macs}) == len(set(macs))
    )
    alike = Counter(map(format_macs, set(macs)))
    names, seen = list[str](), Counter[int]()
    for one in macs:
        seen[one] += 1
        name = format_macs(one, 4 if alike[format_macs(one)] == 1 else digits)
        names.append(name if seen[one] == 1 else f"{name}-{seen[one]}")
    return tuple(names)
