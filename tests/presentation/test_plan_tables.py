import io

from rich.console import Console

from fedfeast.planning import plan_recipe
from fedfeast.presentation.plan_tables import print_plans
from fedfeast.recipes import load_recipe


def shown(*gammas: float) -> str:
    plans = [plan_recipe(load_recipe("cifar100-paper", {"population.gamma": gamma})) for gamma in gammas]
    stream = io.StringIO()
    print_plans(plans, Console(file=stream, width=140))
    return stream.getvalue()


def test_one_plan_shows_levels_and_coverage() -> None:
    text = shown(1.0)
    for part in ("55,682,916", "6.94x", "44.86x / 22.94x / 111.45x", "31.32", "19.62", "who is sent what", "stage4"):
        assert part in text


def test_several_plans_stand_side_by_side() -> None:
    text = shown(0.0, 1.0)
    assert "gamma 0" in text
    assert "gamma 1" in text
    assert "who is sent what" not in text
