from typing import Any

from fedfeast.evaluation.fairness import Participation

NAMES = ["a", "b", "c"]


def test_simulated_clients_answer_unless_they_are_refused() -> None:
    rows: list[dict[str, Any]] = [
        {"clients": [0, 1]},
        {"clients": [1, 2], "refused": [{"client": "b", "reason": "too far"}]},
    ]
    counted = Participation.of(rows, NAMES)
    assert counted.asked == {0: 1, 1: 2, 2: 1}
    assert counted.answered == {0: 1, 1: 1, 2: 1}
    assert counted.refused == {"b": 1}
    assert not counted.awaits_answers
    assert not counted.late


def test_a_fleet_tells_who_was_late_and_who_failed() -> None:
    failed = {"a": "no answer within 600 s", "c": "it cannot be reached"}
    rows: list[dict[str, Any]] = [
        {"clients": [0, 1, 2], "answered": [1], "failed": failed, "answer_seconds": {"b": 2.5}},
        {"clients": [1], "answered": [1], "answer_seconds": {"b": 3.5}},
        {"clients": [0], "answered": [], "refused": [{"client": "a", "reason": "not finite"}]},
    ]
    counted = Participation.of(rows, NAMES)
    assert counted.answered == {1: 2}
    assert (dict(counted.late), dict(counted.failed), dict(counted.refused)) == ({"a": 1}, {"c": 1}, {"a": 1})
    assert counted.seconds == {"b": [2.5, 3.5]}
    assert counted.awaits_answers


def test_rounds_are_added_one_by_one_and_strangers_are_counted_too() -> None:
    counted = Participation()
    counted.add({"clients": [7]}, NAMES)  # a damaged folder's table is shorter than its log
    counted.add({"clients": [0]}, NAMES)
    assert counted.answered == {7: 1, 0: 1}
