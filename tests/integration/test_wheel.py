"""The wheel carries its recipes, caches and population: it runs beside its declared dependencies alone."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
LOOK = """
from importlib import resources
import fedfeast
from fedfeast.engines.graphs.halo.compiling import sources
print(fedfeast.__file__, resources.files("fedfeast.server").joinpath("page", "index.html").read_text(), *sources())
"""


def run(*words: str | Path, cwd: Path) -> str:
    # Nothing of the surrounding environment may help the wheel along.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy, so that the checkout keeps no build folder and gives none."""
    copy = folder / "checkout"
    shutil.copytree(CHECKOUT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, copy)
    run(sys.executable, "-c", BUILD, folder, cwd=copy)
    (wheel,) = folder.glob("fedfeast-*.whl")
    return wheel


def required(requirements: list[str], extras: set[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add what requirements ask for, and what that asks for; each must be here in a version that they allow."""
    for requirement in map(Requirement, requirements):
        if requirement.marker and not any(requirement.marker.evaluate({"extra": one}) for one in {"", *extras}):
            continue
        name, here = canonicalize_name(requirement.name), distribution(requirement.name)
        assert requirement.specifier.contains(here.version, prereleases=True), requirement
        if name not in found:
            found[name] = here
            required(here.requires or [], requirement.extras, found)
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and link what it requires, nothing else; return the new environment's programs."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "clean", cwd=folder)
    programs = folder / "clean" / "bin"
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", programs / "python")
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel, cwd=folder)
    (packages,) = (folder / "clean" / "lib").glob("python*/site-packages")
    (metadata,) = packages.glob("fedfeast-*.dist-info")
    for one in required(Distribution.at(metadata).requires or [], set(), {}).values():
        for name in {file.parts[0] for file in one.files or []} - {"..", "__pycache__"}:
            (packages / name).symlink_to(Path(str(one.locate_file(name))).resolve())
    return programs


def test_the_digits_recipe_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    printed = run(installed / "python", "-c", LOOK, cwd=tmp_path)
    assert Path(printed.split()[0]).is_relative_to(installed.parent)
    assert "static/charts.js" in printed
    assert "primitives.cuh" in printed.split()
    short = ("--set", "training.rounds=2", "--set", "training.clients_per_round=2")
    printed = run(installed / "fedfeast", "train", "digits", "--out", "run", "--json", *short, cwd=tmp_path)
    assert json.loads(printed)["finished_rounds"] == 2
    run(installed / "fedfeast", "report", "run", cwd=tmp_path)
    assert "data-chart" in (tmp_path / "run" / "report.html").read_text()
    run(installed / "fedfeast", "extract", "run", "--max-macs", "3e5", "--out", "bundle", cwd=tmp_path)
    assert (tmp_path / "bundle" / "model.py").is_file()


def test_what_is_not_required_is_not_there(installed: Path, tmp_path: Path) -> None:
    program = "from importlib.util import find_spec; print([find_spec(name) for name in ('onnx', 'flwr', 'pytest')])"
    assert run(installed / "python", "-c", program, cwd=tmp_path).strip() == "[None, None, None]"


def test_the_papers_plan_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    plan = json.loads(run(installed / "fedfeast", "plan", "cifar100-paper", "--json", cwd=tmp_path))
    assert plan["supernet"]["parameters"] == 55_682_916
    assert plan["variants"]["count"] == 56
    assert plan["clients"]["count"] == 100
