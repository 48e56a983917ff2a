from fedfeast.presentation.tracking.tracker import numbers_of, round_numbers, summary_numbers


def test_a_row_of_metrics_becomes_flat_numbers() -> None:
    row = {
        "round": 3,
        "learning_rate": 0.1,
        "clients": [4, 7],
        "losses": {"teacher": 1.5},
        "served_vector": "average",
        "validation_scores": {"global": 0.25, "average": 0.75},
        "refused": [],
        "answer_seconds": {"a": 1.0, "b": 2.0, "c": 9.0},
    }
    assert round_numbers(row) == {
        "learning_rate": 0.1,
        "clients": 2.0,
        "losses/teacher": 1.5,
        "validation_scores/global": 0.25,
        "validation_scores/average": 0.75,
        "refused": 0.0,
        "answer_seconds": 2.0,
    }
    assert numbers_of({"nothing": None}) == {}


def test_of_a_summary_its_single_numbers_are_told() -> None:
    summary = {"population_score": 0.9, "recipe": "digits", "curve": [{"macs": 3}], "traffic": {"reduction": 2}}
    assert summary_numbers(summary) == {"summary/population_score": 0.9}
