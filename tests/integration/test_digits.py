"""The embedded digits are learnt: what `make demo` shows, and the easier recipe beside it."""

from pathlib import Path

import numpy as np
import pytest

import fedfeast

# Measured on 2026-11-15 with torch 2.13.0; CPU types differ in rounding, which training amplifies.
GOLDEN_POPULATION_SCORE = 0.979
README_ROUNDS = '"training.rounds": 60'  # fewer here: that digits are learnt is shown by the whole recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("digits") / "run")


def test_sizes_of_the_demo_differ(tmp_path: Path) -> None:
    curve = fedfeast.train("digits-ladder", out=tmp_path / "run").curve
    assert len(curve.points) == 8
    assert curve.points[-1].accuracy >= 0.95
    assert curve.points[-1].accuracy - curve.points[0].accuracy >= 0.04
    least, greatest = curve.points[0].interval, curve.points[-1].interval
    assert least is not None
    assert greatest is not None
    assert least[1] < greatest[0], "more than chance"


def test_every_served_budget_reaches_95_percent(run: fedfeast.Run) -> None:
    served = {run.curve.serve(budget) for budget in run.folder.budgets_macs()}
    assert None not in served
    assert len(run.curve.points) >= 6
    assert all(point.accuracy >= 0.95 for point in served if point is not None)


def test_the_population_score_is_the_golden_one(run: fedfeast.Run) -> None:
    assert run.population_score == pytest.approx(GOLDEN_POPULATION_SCORE, abs=0.015)


def test_routing_saves_traffic(run: fedfeast.Run) -> None:
    assert run.summary["traffic"]["reduction"] > 2


def test_ten_uncached_networks_lie_within_two_points_of_the_cached_curve(run: fedfeast.Run, tmp_path: Path) -> None:
    cached = [point.macs for point in run.curve.points]
    accuracies = [point.accuracy for point in run.curve.points]
    seen = set()
    for position, budget in enumerate(np.geomspace(200e3, 4.5e6, 12)):
        manifest = fedfeast.extract(run, tmp_path / str(position), fedfeast.Limits(max_macs=budget), search=True)
        if manifest["cached"]:
            continue
        seen.add(manifest["macs"])
        on_the_curve = np.interp(np.log(manifest["macs"]), np.log(cached), accuracies)
        assert abs(manifest["test_accuracy"] - on_the_curve) <= 0.02
        assert manifest["untrained_share"] <= 0.01
    assert len(seen) >= 10


def test_the_readme_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    assert example.count(README_ROUNDS) == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(example.replace(README_ROUNDS, '"training.rounds": 2'), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("MACs") >= 8
    assert "mean over clients" in printed
    assert (tmp_path / "runs" / "digits" / "curve.svg").is_file()
