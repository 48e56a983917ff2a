import re

from fedfeast.server.counters import Counters, resident_bytes


def test_the_text_is_what_prometheus_reads() -> None:
    counters = Counters()
    for seconds in (0.001, 0.03, 20.0):
        counters.note("/api/choose", "GET", 200, seconds, 100)
    counters.note("other", "GET", 404, 0.001, 5)
    text = counters.text({"fedfeast_runs": ("Runs.", {(("run", 'a "b"\\\n'),): 2.5})})
    assert 'fedfeast_requests_total{method="GET",route="/api/choose",status="200"} 3' in text
    buckets = re.findall(r'_bucket\{le="([^"]+)",route="/api/choose"\} (\d+)', text)
    assert buckets[0] == ("0.005", "1")
    assert ("0.05", "2") in buckets
    assert buckets[-1] == ("+Inf", "3")
    assert [int(count) for _, count in buckets] == sorted(int(count) for _, count in buckets)
    assert 'fedfeast_request_seconds_sum{route="/api/choose"} 20.031' in text
    assert 'fedfeast_request_seconds_count{route="/api/choose"} 3' in text
    assert "fedfeast_sent_bytes_total 305" in text
    assert 'fedfeast_runs{run="a \\"b\\"\\\\\\n"} 2.5' in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{.*\})? [0-9.e+-]+", line), line


def test_memory_is_told() -> None:
    memory = resident_bytes()
    assert memory is None or memory > 1e6
