"""What every validated size came to, round by round."""

from collections.abc import Iterable, Mapping
from typing import Any

SizeHistory = dict[str, dict[int, float]]  # by the size's name and the round


def read_sizes(rows: Iterable[Mapping[str, Any]]) -> SizeHistory:
    """Return the values in a run's lines of metrics, sizes with the least MACs first; none of runs that kept none."""
    values, macs = SizeHistory(), dict[str, int]()
    for row in rows:
        for size in row.get("validation_sizes", []):
            values.setdefault(size["name"], {})[row["round"]] = size["value"]
            macs[size["name"]] = size["macs"]  # which weights may decide
    return {name: values[name] for name in sorted(values, key=macs.__getitem__)}
