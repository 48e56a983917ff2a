from pathlib import Path

import fedfeast
from fedfeast.presentation.recipe_differences import recipe_differences


def test_settings_that_are_not_the_same_in_all_runs(tmp_path: Path) -> None:
    short = {"training.rounds": 3}
    changes: list[dict[str, object]] = [{}, {**short}, {**short, "method": {"name": "fedavg"}}]
    runs = [fedfeast.Run.create("digits", tmp_path / str(place), one) for place, one in enumerate(changes)]
    rows = {row[0]: row[1:] for row in recipe_differences(runs)}
    assert rows["training.rounds"] == ["60", "3", "3"]
    assert rows["method.name"] == ["feast", "feast", "fedavg"]
    assert rows["method.rule"] == ["full", "full", "not set"]
    assert "seed" not in rows
    assert recipe_differences(runs[:1]) == []


def test_files_are_the_same_where_their_content_is(tmp_path: Path) -> None:
    runs = []
    for name, greatest in {"one": 4e6, "copy": 4e6, "other": 5e6}.items():
        budgets = tmp_path / f"{name}.csv"
        budgets.write_text(f"name,budget_macs\na,{2e5}\nb,{greatest}\n")
        settings = {"population.source": "file", "population.file": str(budgets), "training.clients_per_round": 2}
        runs.append(fedfeast.Run.create("digits", tmp_path / name, settings))
    assert recipe_differences(runs[:2]) == []
    ((setting, first, _, third),) = recipe_differences(runs)
    assert setting == "population.file"
    assert first.startswith("a file, sha256 ")
    assert first != third
