"""The demonstration itself is `make fleet-demo`; tests/integration drives the same fleet of processes."""

import socket
from pathlib import Path

import pytest
from rich.console import Console

from fedfeast.app.fleet_demo import BUDGETS_MACS, SETTINGS, run_demo
from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method


def test_the_budgets_are_small_middle_and_top() -> None:
    recipe = load_recipe("digits", [part.strip() for part in SETTINGS.format(rounds=4).split(";")])
    macs = [point.macs for point in build_method(recipe)[0].operating_points()]
    small, middle, top = (sum(cost <= budget for cost in macs) for budget in BUDGETS_MACS.values())
    assert (small, top) == (1, len(macs))
    assert small < middle < top
    assert recipe.fleet.least_clients == 3


def test_a_port_in_use_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is in use"):
            run_demo(tmp_path, 1, tmp_path / "run", Console(quiet=True), port)
    assert list(tmp_path.iterdir()) == []
