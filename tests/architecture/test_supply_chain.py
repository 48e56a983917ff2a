"""What is asked for excludes versions with known holes; make audit looks for new ones."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The first version without them, and what they were.
WITHOUT_HOLES = {
    "starlette": (
        "1.3.1",
        "CVE-2025-62727 (ranges in quadratic time), CVE-2026-48710, CVE-2026-54282 (hosts and paths)",
    ),
    "h11": ("0.16", "CVE-2025-43859 (smuggled requests)"),
    "pillow": ("12.2", "CVE-2026-25990 (PSD), CVE-2026-40192 (FITS), CVE-2025-48379 (DDS)"),
    "onnx": ("1.21", "CVE-2026-27489, CVE-2026-34445 (external data)"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "filelock": ("3.20.3", "CVE-2025-68146, CVE-2026-22701 (links in place of lock files)"),
    "torch": ("2.6", "CVE-2025-32434 (weights that run code)"),
}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text.split("+")[0])))


def requirements() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    every = [*project["dependencies"], *(one for extra in extras for one in extra)]
    found = (re.match(r"([A-Za-z0-9_.-]+)(?:\[[a-z,-]+\])?(.*)", one) for one in every)
    return {match[1].lower(): match[2] for match in found if match is not None and match[2]}


@pytest.mark.parametrize("name", WITHOUT_HOLES)
def test_floors_and_pins_are_above_known_holes(name: str) -> None:
    least = numbers(WITHOUT_HOLES[name][0])
    floor = re.search(r">=([0-9.]+)", requirements()[name])
    assert floor is not None
    assert numbers(floor[1]) >= least
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    assert numbers(pinned[name]) >= least
    assert numbers(version(name)) >= least


def test_what_we_reach_into_has_an_upper_bound() -> None:
    assert "<0.50" in requirements()["uvicorn"], "its H11Protocol is extended in server/slow_clients.py"
    assert "<1.43" in requirements()["flwr"]
