"""The wheel carries its recipes, caches, population and Flower app: it runs beside its declared dependencies alone."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from contextlib import suppress
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
SENT_ALONG = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "constraints.txt")  # in the sdist alone
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


def copy_checkout(folder: Path) -> Path:
    """Copy what is needed to build, so that the checkout keeps no build folder and gives none."""
    copy = folder / "checkout"
    shutil.copytree(CHECKOUT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", *SENT_ALONG):
        shutil.copy(CHECKOUT / name, copy)
    return copy


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist from a folder of sources."""
    folder.mkdir()
    run(sys.executable, "-c", BUILD, f"build_{kind}", folder, cwd=source)
    (built,) = folder.glob("fedfeast-*")
    return built


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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", copy_checkout(folder), folder / "built")


def install(wheel: Path, folder: Path, extras: set[str]) -> Path:
    """Install the wheel and link what it requires, nothing else; return the new environment's programs."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "clean", cwd=folder)
    programs = folder / "clean" / "bin"
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", programs / "python")
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel, cwd=folder)
    (packages,) = (folder / "clean" / "lib").glob("python*/site-packages")
    (metadata,) = packages.glob("fedfeast-*.dist-info")
    for one in required(Distribution.at(metadata).requires or [], extras, {}).values():
        for name in {file.parts[0] for file in one.files or []} - {"..", "__pycache__"}:
            with suppress(FileExistsError):  # packages that share a folder
                (packages / name).symlink_to(Path(str(one.locate_file(name))).resolve())
        for entry in one.entry_points.select(group="console_scripts"):
            program = programs / entry.name
            program.write_text(
                f"#!{programs / 'python'}\nimport sys\nfrom {entry.module} import {entry.attr}\n"
                f"sys.exit({entry.attr}())\n"
            )
            program.chmod(0o755)
    return programs


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires."""
    return install(wheel, tmp_path_factory.mktemp("clean"), set())


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


def test_a_wheel_of_the_sdist_is_that_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", copy_checkout(tmp_path), tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert {file.name for file in unpacked.iterdir()} >= {"pyproject.toml", "README.md", "LICENSE", *SENT_ALONG}
    again = build("wheel", unpacked, tmp_path / "again")
    files = [{one.filename: one.CRC for one in zipfile.ZipFile(each).infolist()} for each in (wheel, again)]
    assert files[0] == files[1]
    assert again.name == wheel.name


def test_the_wheel_says_who_made_it_and_for_what(installed: Path) -> None:
    (metadata,) = installed.parent.glob("lib/python*/site-packages/fedfeast-*.dist-info")
    told = Distribution.at(metadata).metadata
    assert told["Author"] == "The fedfeast contributors"
    assert told["Author-email"] is None
    assert told["License-Expression"] == "Apache-2.0"
    assert "Programming Language :: Python :: 3.11" in (told.get_all("Classifier") or [])


def test_the_fleet_demonstration_runs_from_the_wheel(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    programs = install(wheel, tmp_path, {"flower"})
    printed = run(programs / "fedfeast", "fleet", "demo", "--rounds", "1", "--out", "run", cwd=tmp_path)
    assert "3 of 3 answered" in printed
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished_rounds"] == 1
    run(programs / "fedfeast", "fleet", "app", "--out", "app", cwd=tmp_path)
    assert (tmp_path / "app" / "pyproject.toml").is_file()
