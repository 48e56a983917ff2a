"""Units, and how they are written for people."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

GIB = 2**30  # bytes
Units = Sequence[tuple[str, float]]  # names and sizes, the largest first
BYTES_UNITS: Units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
PMACS_UNITS: Units = (("PMACs", 1.0), ("TMACs", 1e-3), ("GMACs", 1e-6))  # of computing counted in PMACs


def suited_unit(values: Iterable[float], units: Units) -> tuple[str, float]:
    """Return the largest unit of which the least value is at least one, and how much it is."""
    least = min(values)
    return next((one for one in units if least >= one[1]), units[-1])


def format_macs(macs: float, digits: int = 4) -> str:
    """Return MACs for people, e.g. 24.97M or 412.3k; of a training also 31.32P."""
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if macs >= scale:
            return f"{macs / scale:.{digits}g}{unit}"
    return f"{macs:.0f}"


def format_bytes(count: float) -> str:
    """Return bytes for people in decimal units, e.g. 1.25 GB or 412 kB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """Return a duration for people in the unit that suits it, e.g. 0.85 s, 12 min, 5.3 h or 3.1 days."""
    for unit, scale, least in (("days", 86400.0, 2), ("h", 3600.0, 1), ("min", 60.0, 2)):
        if seconds >= least * scale:
            count = seconds / scale
            return f"{count:,.0f} {unit}" if count >= 100 or unit == "min" else f"{count:.2g} {unit}"
    return f"{seconds:.3g} s"


def format_threads(count: int) -> str:
    """Return 1 thread, or 2 threads."""
    return f"{count} thread{'' if count == 1 else 's'}"


@lru_cache(maxsize=64)  # a plan asks again for every client
def name_by_macs(macs: tuple[int, ...]) -> tuple[str, ...]:
    """Return a name for each of some costs: as people write them, with more digits where two look alike."""
    digits = next(
        digits for digits in range(4, 20) if len({format_macs(one, digits) for one in macs}) == len(set(macs))
    )
    alike = Counter(map(format_macs, set(macs)))
    return tuple(format_macs(one, 4 if alike[format_macs(one)] == 1 else digits) for one in macs)


def number_repeated(names: Iterable[str]) -> list[str]:
    """Return the names, those that came before with a number: a name, its second as name-2."""
    numbered, seen = list[str](), Counter[str]()
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return numbered
