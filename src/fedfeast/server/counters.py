"""What Prometheus reads: what the server has done, what its runs offer, and what its process takes."""

from collections.abc import Iterable, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fedfeast.server.collection import Shown

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Counters(Collector):
    """One application's numbers since it began; several applications of one process count apart."""

    def __init__(self, runs: Mapping[str, Shown] | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        request = ("method", "route", "status")
        self._requests = Counter("fedfeast_requests_total", "Requests answered.", request, registry=registry)
        self._seconds = Histogram(
            "fedfeast_request_seconds",
            "Time from a request to the end of its answer.",
            ("route",),
            registry=registry,
            buckets=BUCKETS,
        )
        self._sent_bytes = Counter(
            "fedfeast_sent_bytes_total", "Bytes of answers, headers left out.", registry=registry
        )
        registry.register(_RunGauges(runs or {}))
        ProcessCollector(registry=registry)  # resident memory and more, where the system tells

    def note(self, route: str, method: str, status: int, seconds: float, sent_bytes: int) -> None:
        """Count one finished request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        self._sent_bytes.inc(sent_bytes)

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self)

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of this moment."""
        for metric in self._registry.collect():
            # When each series began is told by nobody here; the switch for that holds for the whole process.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _RunGauges(Collector):
    """What runs have at the moment of asking."""

    def __init__(self, runs: Mapping[str, Shown]) -> None:
        self._runs = runs

    def collect(self) -> Iterable[Metric]:
        rounds = GaugeMetricFamily("fedfeast_run_finished_rounds", "Finished rounds of a run.", labels=["run"])
        variants = GaugeMetricFamily("fedfeast_run_variants", "Networks on offer.", labels=["run"])
        for name, run in self._runs.items():
            rounds.add_metric([name], len(run.seen.rows))
            variants.add_metric([name], len(run.seen.variants))
        return rounds, variants
