"""The wheel carries its recipes, caches and population: it runs from a clean environment, without the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


def run(*words: str | Path, cwd: Path) -> str:
    # Nothing of the surrounding environment may help the wheel along.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it with its dependencies; return the new environment's programs."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--quiet")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, CHECKOUT, cwd=folder)
    (wheel,) = folder.glob("fedfeast-*.whl")
    run(sys.executable, "-m", "venv", folder / "clean", cwd=folder)
    programs = folder / "clean" / "bin"
    constraints = CHECKOUT / "constraints.txt"
    run(programs / "python", "-m", "pip", "--quiet", "install", "--constraint", constraints, wheel, cwd=folder)
    return programs


def test_the_digits_recipe_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import fedfeast; print(fedfeast.__file__)", cwd=tmp_path)
    assert "site-packages" in where
    short = ("--set", "training.rounds=2", "--set", "evaluation.every_rounds=1")
    printed = run(installed / "fedfeast", "train", "digits", "--out", "run", "--json", *short, cwd=tmp_path)
    assert json.loads(printed)["finished_rounds"] == 2
    run(installed / "fedfeast", "report", "run", cwd=tmp_path)
    assert "data-chart" in (tmp_path / "run" / "report.html").read_text()
    page = (
        "from importlib.resources import files; print(files('fedfeast.server').joinpath('page/index.html').read_text())"
    )
    assert "static/charts.js" in run(installed / "python", "-c", page, cwd=tmp_path)
    run(installed / "fedfeast", "extract", "run", "--max-macs", "3e5", "--out", "bundle", cwd=tmp_path)
    assert (tmp_path / "bundle" / "model.py").is_file()


def test_the_papers_plan_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    plan = json.loads(run(installed / "fedfeast", "plan", "cifar100-paper", "--json", cwd=tmp_path))
    assert plan["supernet"]["parameters"] == 55_682_916
    assert plan["variants"]["count"] == 56
    assert plan["clients"]["count"] == 100
