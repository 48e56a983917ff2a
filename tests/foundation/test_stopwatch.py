import time

import pytest

from fedfeast.stopwatch import Repeats, time_calls, waiting_for


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless it is moved."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("repeats", "timed"),
    [
        (Repeats(most=7), 7),
        (Repeats(most=7, warm_ups=2), 7),
        (Repeats(most=7, most_seconds=2.5), 5),
        (Repeats(most_seconds=2.5), 5),
        (Repeats(most=7, least=6, most_seconds=0.1), 6),
        (Repeats(most=2, least=2, most_seconds=100), 2),
    ],
)
def test_how_often_a_call_is_timed(seconds: list[float], repeats: Repeats, timed: int) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        seconds[0] += 100 if len(calls) <= repeats.warm_ups else 0.5

    assert time_calls(call, repeats) == [500.0] * timed
    assert len(calls) == repeats.warm_ups + timed


def test_the_device_is_waited_for_before_and_after_and_only_the_latter_counts(seconds: list[float]) -> None:
    told: list[str] = []

    def call() -> None:
        told.append("call")

    def wait() -> None:
        seconds[0] += 1.0
        told.append("wait")

    assert time_calls(call, Repeats(most=2, warm_ups=1), wait) == [1000.0, 1000.0]
    assert told == ["call", "wait", "call", "wait", "wait", "call", "wait"]


def test_a_processor_is_never_waited_for() -> None:
    assert waiting_for("cpu")() is None


@pytest.mark.parametrize("values", [{}, {"least": 3}, {"most": 2, "least": 3}, {"most": 0}])
def test_what_would_never_end_or_begin_is_a_mistake(values: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        Repeats(**values)
