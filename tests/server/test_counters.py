from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection
from fedfeast.server.counters import BUCKETS, Counters

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values(text: str) -> Values:
    """Return what Prometheus reads: every series by its name and labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def test_what_was_counted_can_be_read() -> None:
    counters = Counters()
    for seconds in (0.001, 0.03, 20.0):
        counters.note("/api/choose", "GET", 200, seconds, 100)
    counters.note("other", "GET", 404, 0.001, 5)
    text = counters.text().decode()
    assert 'fedfeast_requests_total{method="GET",route="/api/choose",status="200"} 3.0' in text
    read = values(text)
    route = ("route", "/api/choose")
    buckets = {
        dict(labels)["le"]: read[name, labels] for name, labels in read if name.endswith("_bucket") and route in labels
    }
    assert [float(bound) for bound in buckets] == [*BUCKETS, float("inf")]
    assert list(buckets.values()) == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3]
    assert read["fedfeast_request_seconds_sum", frozenset({route})] == pytest.approx(20.031)
    assert read["fedfeast_request_seconds_count", frozenset({route})] == 3
    assert read["fedfeast_sent_bytes_total", frozenset()] == 305
    assert "_created" not in text


def test_applications_of_one_process_count_apart(trained: Path, client_of: Callable[[Any], Any]) -> None:
    clients = [client_of(build_app(Collection([trained]))) for _ in range(2)]
    for path in ("/", "/healthz", "/healthz", "/static/page.js", "/static/nothing.js", "/nowhere"):
        clients[0].get(path)
    answer = clients[0].get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    read, others = values(answer.text), values(clients[1].get("/metrics").text)
    requests = {labels: value for (name, labels), value in read.items() if name == "fedfeast_requests_total"}
    counted = {(dict(labels)["route"], dict(labels)["status"]): value for labels, value in requests.items()}
    assert counted == {
        ("/", "200"): 1,
        ("/healthz", "200"): 2,
        ("/static/{name}", "200"): 1,
        ("/static/{name}", "404"): 1,
        ("other", "404"): 1,
    }
    assert not any(name == "fedfeast_requests_total" for name, _ in others)
    for one in (read, others):
        assert one["fedfeast_run_finished_rounds", frozenset({("run", "digits")})] == 14
        assert one["fedfeast_run_variants", frozenset({("run", "digits")})] == 8
        assert one["process_resident_memory_bytes", frozenset()] > 1e6
