"""Units, and how they are written for people."""


def format_macs(macs: float) -> str:
    """Return MACs for people, e.g. 24.97M or 412.3k."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if macs >= scale:
            return f"{macs / scale:.4g}{unit}"
    return f"{macs:.0f}"
