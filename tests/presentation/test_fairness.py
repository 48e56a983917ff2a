from collections.abc import Callable
from typing import Any

from fedfeast.data.tasks import ACCURACY, task_named
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.evaluation.fairness import Fairness, Participation, measure_fairness
from fedfeast.presentation.chart import Point
from fedfeast.presentation.fairness import fairness_caption, fairness_charts, fairness_table, worst_in_words
from fedfeast.recipes.recipe import resolve_recipe
from fedfeast.runs import Run

MakeUpRun = Callable[..., Run]
CLIENTS = [
    {"name": name, "budget_macs": f"{macs}", "num_examples": "5"}
    for name, macs in {"a": 500, "b": 1500, "c": 9000}.items()
]
CURVE = Curve((CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75)))
FLEET = [
    {"clients": [0, 1, 2], "answered": [1, 2], "failed": {"a": "no answer within 9 s"}, "answer_seconds": {"b": 2.0}}
]


def of_rows(rows: list[dict[str, Any]], curve: Curve | None = CURVE) -> Fairness:
    metric = ACCURACY if curve is None else curve.metric
    return measure_fairness(CLIENTS, Participation.of(rows, ["a", "b", "c"]), metric, curve)


def test_scores_and_answers_of_a_simulated_run(make_up_run: MakeUpRun) -> None:
    scores, answers = fairness_charts([("one", make_up_run("one").fairness)])
    # Budgets of 500, 1500 and 9000 MACs; the last one's client was asked in both rounds.
    assert scores.series[0].points == (
        Point(1, 0.0, name="500"),
        Point(2, 50.0, name="1.5k"),
        Point(3, 75.0, name="9k"),
    )
    assert [point.y for point in answers.series[0].points] == [0, 0, 2]
    assert scores.y.label == "score, accuracy (%)"
    assert scores.x.label == "clients, smallest budgets first"
    assert (scores.x.least, scores.x.greatest) == (0.5, 3.5)


def test_a_fleet_has_late_clients_and_seconds() -> None:
    _, answers, seconds = fairness_charts([("fleet", of_rows(FLEET)), ("simulated", of_rows([{"clients": [0]}]))])
    assert [series.label for series in answers.series] == ["fleet", "simulated", "fleet, late"]
    assert [point.y for point in answers.series[2].points] == [1, 0, 0]
    assert [series.points for series in seconds.series] == [(Point(2, 2.0, name="1.5k"),)]


def test_before_the_end_there_are_no_scores_and_other_metrics_have_charts_of_their_own() -> None:
    (answers,) = fairness_charts([("one", of_rows([{"clients": [0]}], None))])
    assert answers.y.label == "answers per client"
    bits = Curve((CurvePoint("1k", 1000, 1, 3.0),), task_named("next-token").metric, 6.0)
    charts = fairness_charts([("one", of_rows([])), ("text", of_rows([], bits))])
    assert [chart.y.label for chart in charts[:2]] == ["score, accuracy (%)", "score, bits per symbol (less is better)"]
    assert [series.colour for chart in charts[:2] for series in chart.series] == [0, 1]


def test_the_table_leaves_out_what_is_not_known() -> None:
    headings, rows = fairness_table(of_rows([{"clients": [2], "refused": [{"client": "c", "reason": "far"}]}]))
    assert not {"late", "failed", "median seconds", "own examples"} & set(headings)
    first, *_, last = (dict(zip(headings, row, strict=True)) for row in rows)
    assert (first["tenth"], first["served"], first["accuracy of those served"]) == ("1, the worst", "0", "-")
    assert (last["asked"], last["answered"], last["refused"], last["score"]) == ("1", "0", "1", "75.00 %")
    everybody = Curve((CurvePoint("400", 400, 1, 0.5),))
    assert "accuracy of those served" not in fairness_table(of_rows([], everybody))[0]
    headings, rows = fairness_table(of_rows(FLEET))
    assert [dict(zip(headings, row, strict=True))["late"] for row in rows] == ["1", "0", "0"]
    assert [dict(zip(headings, row, strict=True))["median seconds"] for row in rows] == ["-", "2", "-"]


def test_under_central_privacy_nobody_is_told_who_took_part(make_up_run: MakeUpRun) -> None:
    run = make_up_run("private")
    private = {"privacy.mechanism": "central", "privacy.clip_norm": 1.0, "privacy.noise_multiplier": 1.0}
    run.recipe = resolve_recipe(run.recipe, {**private, "training.cohort": "poisson"})
    (scores,) = fairness_charts([("private", run.fairness)])
    assert scores.y.label == "score, accuracy (%)"
    headings, _ = fairness_table(run.fairness)
    assert not {"asked", "answered", "refused", "never took part"} & set(headings)
    assert "Who took part stays unknown" in fairness_caption(run.fairness)


def test_in_words() -> None:
    simulated = of_rows([{"clients": [2]}])
    assert fairness_caption(simulated) == (
        "Every client, over all rounds. Simulated clients are never late. The worst score is 0.00 %, 75.00 points "
        "behind the best."
    )
    assert "question to answer" in fairness_caption(of_rows(FLEET, None))
    assert worst_in_words(simulated.facts(), ACCURACY) == "0.00 % (client 1 of 3 by budget; the best has 75.00 %)"
    assert worst_in_words({}, ACCURACY) is None
    assert worst_in_words(of_rows(FLEET, None).facts(), ACCURACY) is None
