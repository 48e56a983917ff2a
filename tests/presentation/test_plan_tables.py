import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from fedfeast.planning import plan_recipe
from fedfeast.presentation.plan_tables import describe_device, describe_methods, describe_plans, describe_recipes
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe_list import list_recipes
from fedfeast.units import format_macs

MEASURED: dict[str, Any] = {
    "recipe": "digits",
    "method": "feast",
    "device": "cpu",
    "threads": 2,
    "runtime": "onnxruntime 1.31",
    "peak_memory_megabytes": 123.4,
    "variants": [
        {
            "macs": 128_320,
            "parameters": 7730,
            "milliseconds": 0.159,
            "fastest_milliseconds": 0.15,
            "slowest_milliseconds": 0.2,
            "macs_per_second": 8.07e8,
        }
    ],
}
POINT = {"name": "25M", "macs": 25_000_000, "parameters": 7}
METHOD = {
    "name": "mine",
    "summary": "Does [something].",
    "paper": "Somebody, 2026",
    "suits": "Wherever [nothing] else does.",
    "refused": "nobody [affords] it",
    "keeps_budgets": True,
    "parameters": 1234,
    "options": {"width": [0.5, 1]},
    "presets": {},
    "operating_points": [POINT, {**POINT, "name": "50M"}],
}


def printed(parts: list[RenderableType], width: int = 140) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    for part in parts:
        console.print(part)
    return stream.getvalue()


@pytest.mark.parametrize("recipe", ["digits-ladder", "cifar100-paper"])
@pytest.mark.parametrize("width", [60, 80])
def test_no_number_of_a_plan_is_cut(width: int, recipe: str) -> None:
    plan = plan_recipe(recipe)
    text = printed(describe_plans([plan]), width)
    assert "…" not in text
    words = set(text.split())
    for level in plan["levels"]:
        assert {format_macs(level["largest_macs"]), format_macs(level["pass_macs"])} <= words
        assert f"{level['payload_parameters']:,.0f}" in words
    assert {f"{part['parameters']:,}" for part in plan["coverage"]["parts"] if part["stage"] == "stem"} <= words
    assert {"clients", "variants", "examples", "parameters", "routed"} <= words, "nor headings"


def test_small_amounts_are_in_units_that_suit_them() -> None:
    text = printed(describe_plans([plan_recipe("digits-ladder")]))
    rows = {" ".join(line.replace("│", " ").split()) for line in text.splitlines()}
    assert "traffic a round and in all, both ways 5.47 MB, 328 MB" in rows
    assert "training compute (MACs) 63.78G" in rows


def test_recipes_have_their_whole_names_in_a_narrow_terminal() -> None:
    recipes = list_recipes()
    text = printed(describe_recipes(recipes), width=60)
    assert {one["name"] for one in recipes} <= set(text.splitlines())
    assert "data digits, 40 clients, 60 rounds" in text


def test_payloads_are_whole_numbers_that_are_never_cut() -> None:
    plan = plan_recipe("cifar100-paper")
    text = printed(describe_plans([plan]), width=80)
    for level in plan["levels"]:
        assert f" {level['payload_parameters']:,.0f} " in text
    assert " 2,020,140 " in text
    assert "…" not in text


def test_large_times_are_hours_or_days_and_threads_are_said() -> None:
    time = {"seconds_per_round": 123.0, "hours": 4000 * 123 / 3600, "threads": 2}
    text = printed(describe_plans([{**plan_recipe("digits"), "time": time}]))
    assert "2 min a round, 5.7 days in all" in text
    assert "predicted time here, eager engine, 2 threads" in text


def test_one_plan_shows_levels_and_coverage_and_several_stand_side_by_side() -> None:
    even, skewed = (plan_recipe(load_recipe("cifar100-authors", {"population.gamma": gamma})) for gamma in (0.0, 1.0))
    text = printed(describe_plans([skewed]))
    for part in (
        "55,682,916",
        "6.79x",
        "43.42x / 22.94x / 111.45x",
        "31.01P; 19.86P",
        "31 / 6 / 63",
        "35,602,596",
        "stage4",
    ):
        assert part in text
    for part in ("true MACs, at most", "17; 12 with their largest", "mean of 5 anchors", "who is sent what"):
        assert part in text
    text = printed(describe_plans([even, skewed]))
    assert "gamma 0" in text
    assert "gamma 1" in text
    assert "who is sent what" not in text


def test_a_plan_says_what_is_lifted_shared_and_unused() -> None:
    theirs, ours = plan_recipe("cifar100-authors"), plan_recipe("cifar100-paper")
    rows = {" ".join(line.split()) for line in printed(describe_plans([theirs])).splitlines()}
    for row in (
        "│ realized shard: least, median, most │ 37 / 183 / 1903 │",
        "│ budgets lifted to the smallest network │ 15 │",
        "│ also trained on: validation, calibration examples │ 4,049, 452 │",
        "│ training examples of nobody │ 4,501 │",
    ):
        assert row in rows
    assert "│ local steps if every client trains once │ 749, 98 of them on short batches │" in rows
    assert "4,049, 452" in printed(describe_plans([ours, theirs]))
    assert "also trained on" not in printed(describe_plans([ours]))


def test_a_plan_says_which_clients_and_classes_are_not_trained() -> None:
    tiny = printed(describe_plans([plan_recipe("tinyimagenet-authors")]))
    rows = {" ".join(line.split()) for line in tiny.splitlines()}
    assert "│ classes that nobody trains │ 20 │" in rows
    assert "take no step" not in tiny
    strict = plan_recipe("digits", {"training.least_distinct": 3})
    assert strict["data"]["batches"]["clients_without"] == 8
    rows = {" ".join(line.split()) for line in printed(describe_plans([strict])).splitlines()}
    assert "│ clients that take no step (training.least_distinct) │ 8 │" in rows
    assert "on short batches" not in printed(describe_plans([strict]))


@pytest.mark.parametrize("method", ["heterofl", "scalefl", "superfednas", "deepfednas"])
def test_baselines_to_the_letter_are_shown_with_prices_or_without(method: str) -> None:
    plan = plan_recipe("cifar100-authors", {"method.name": method, "method.preset": "authors"})
    text = printed(describe_plans([plan]))
    assert "who is sent what" in text
    assert ("as priced" in text) == ("price_min" in plan["variants"])


def test_what_a_device_affords() -> None:
    suggestion = {"target_milliseconds": 3.0, "budget_macs": 128_320, "served_macs": 128_320}
    text = printed(describe_device({**MEASURED, "suggestion": suggestion}))
    for part in (
        "2 threads, onnxruntime 1.31",
        "7,730",
        "0.159",
        "0.15 to 0.2",
        "807M",
        "123 MB",
        "budget-macs=128320",
        "for 3 ms",
    ):
        assert part in text
    assert "add --target-ms" in printed(describe_device(MEASURED))


def test_a_method_is_shown_with_what_it_serves() -> None:
    text = printed(describe_methods([METHOD], "digits"))
    assert "operating points for digits" in text
    for part in (
        "mine",
        "Does [something].",
        "Wherever [nothing] else",
        "Somebody, 2026",
        "25M, 50M MACs, of 1,234",
        "width = [0.5, 1]",
    ):
        assert part in text
    assert "budgets" not in text
    assert "preset" not in text
    assert "presets (method.preset): authors" in printed(describe_methods([{**METHOD, "presets": {"authors": {}}}], ""))
    assert "does not keep budgets" in printed(describe_methods([{**METHOD, "keeps_budgets": False}], "digits"))


def test_many_points_are_shown_by_their_ends() -> None:
    many = [{**POINT, "name": f"{number}M"} for number in range(1, 9)]
    text = printed(describe_methods([{**METHOD, "operating_points": many}], "digits"))
    assert "serves 8 points from 1M to 8M MACs" in text


def test_a_busy_machine_is_said() -> None:
    assert "other programs disturbed it" in printed(describe_device({**MEASURED, "is_busy": True}))
    assert "other programs" not in printed(describe_device({**MEASURED, "is_busy": False}))


def test_a_plan_with_a_clock_says_what_buffered_merges_gain() -> None:
    words = ["simulation.speeds=pareto", "fleet.mode=buffered", "fleet.buffer=5", "training.rounds=12"]
    plan = plan_recipe("digits", [*words, "fleet.deadline_seconds=2.0"])
    text = printed(describe_plans([plan]))
    assert plan["clock"]["given_up"]
    assert f"60 answers, {plan['clock']['given_up']} given up" in text
    assert "as many answers in synchronous rounds" in text
    assert "clock" not in plan_recipe("digits")
