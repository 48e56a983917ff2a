"""Counters for Prometheus, in its text format."""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class Counters:
    """What the server has done since it began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._buckets: dict[str, list[int]] = {}  # by route: how many took no longer than each of BUCKETS
        self._seconds: Counter[str] = Counter()
        self._sent_bytes = 0

    def note(self, route: str, method: str, status: int, seconds: float, sent_bytes: int) -> None:
        """Count one finished request."""
        labels = (("method", method), ("route", route), ("status", str(status)))
        with self._lock:
            self._requests[labels] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]
            self._sent_bytes += sent_bytes
            counts = self._buckets.setdefault(route, [0] * len(BUCKETS))
            for position, bound in enumerate(BUCKETS):
                counts[position] += seconds <= bound

    def text(self, gauges: Mapping[str, tuple[str, dict[Labels, float]]]) -> str:
        """Return everything, with gauges of the moment: help and values by name."""
        with self._lock:
            lines = [
                *_head("fedfeast_requests_total", "counter", "Requests answered."),
                *_values("fedfeast_requests_total", self._requests),
                *_head("fedfeast_request_seconds", "histogram", "Time from a request to the end of its answer."),
                *(line for route in sorted(self._buckets) for line in self._histogram(route)),
                *_head("fedfeast_sent_bytes_total", "counter", "Bytes of answers, headers left out."),
                f"fedfeast_sent_bytes_total {self._sent_bytes}",
            ]
        for gauge, (about, values) in gauges.items():
            lines += [*_head(gauge, "gauge", about), *_values(gauge, values)]
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str) -> Iterable[str]:
        name, label = "fedfeast_request_seconds", ("route", route)
        for bound, count in zip(BUCKETS, self._buckets[route], strict=True):
            yield f"{name}_bucket{_labels((('le', f'{bound:g}'), label))} {count}"
        total = sum(count for labels, count in self._requests.items() if label in labels)
        yield f"{name}_bucket{_labels((('le', '+Inf'), label))} {total}"
        yield f"{name}_sum{_labels((label,))} {self._seconds[route]:.10g}"
        yield f"{name}_count{_labels((label,))} {total}"


def resident_bytes() -> int | None:
    """Return this process's resident memory; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _head(name: str, kind: str, about: str) -> Iterable[str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _values(name: str, values: Mapping[Labels, float]) -> list[str]:
    return [f"{name}{_labels(labels)} {value:.10g}" for labels, value in sorted(values.items())]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((key, text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for key, text in labels)
    return "{" + ",".join(f'{key}="{text}"' for key, text in escaped) + "}"
