from typing import Any

import pytest

from fedfeast.runs.well_formed import misfit_released, misfit_round, misfit_summary

POINT = {"name": "1k", "macs": 1, "parameters": 1, "value": 0.5}
ROUND = {"round": 1, "losses": {"teacher": 1.0}, "clients": [0], "payload_parameters": 3, "seconds": 0.1}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, None),
        ({"curve": []}, None),
        ({"curve": [{**POINT, "value": "x"}]}, "curve"),
        ({"curve": [{"name": "1k", "macs": 1, "parameters": 1}]}, "curve"),
        ({"curve": 5}, "curve"),
        ({"finished_rounds": True}, "finished_rounds"),
        ({"finished_rounds": 10**400}, "finished_rounds"),
        ({"population_score": None}, "population_score"),
        ({"test_sets": {"a": {"curve": [POINT]}}}, None),
        ({"test_sets": {"a": []}}, "test_sets"),
        ({"traffic": {"reduction": "x"}}, "traffic"),
        ({"fairness": {"deciles": [{"decile": 1, "score": None}]}}, None),
        ({"fairness": {"deciles": [{"decile": 1, "score": "x"}]}}, "fairness"),
        ({"fairness": []}, "fairness"),
        ({"of a later version": object}, None),
    ],
)
def test_summaries(more: dict[str, Any], wrong: str | None) -> None:
    assert misfit_summary({"finished_rounds": 1, "curve": [POINT], **more}) == wrong


def test_rounds_and_who_was_asked() -> None:
    assert misfit_round(ROUND) is None
    assert misfit_round({**ROUND, "losses": {"teacher": float("nan")}}) is None
    assert misfit_round({**ROUND, "clients": 5}) == "clients"
    assert misfit_round({**ROUND, "validation_sizes": [{"name": "1k", "macs": 1, "value": 0.5}]}) is None
    for wrong in (5, [5], [{"name": "1k", "macs": 1}], [{"name": "1k", "macs": "x", "value": 0.5}]):
        assert misfit_round({**ROUND, "validation_sizes": wrong}) == "validation_sizes"
    told = {
        "answered": [0],
        "refused": [{"client": "a", "reason": "b"}],
        "failed": {"a": "b"},
        "answer_seconds": {"a": 1},
    }
    assert misfit_round({**ROUND, **told}) is None
    odd: dict[str, Any] = {"answered": [-1], "refused": [{}], "failed": {"a": 1}, "answer_seconds": [1]}
    for key, value in odd.items():
        assert misfit_round({**ROUND, **told, key: value}) == key
    assert misfit_round({}) == "round"
    assert misfit_round(None) == "all of it"
    assert misfit_released({"round": 1, "clients": [3]}) is None
    assert misfit_released({"round": 1, "clients": ["a"]}) == "clients"
