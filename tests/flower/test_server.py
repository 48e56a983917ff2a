"""The server's app, and its end with its SuperLink."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedfeast.errors import InvalidInput
from fedfeast.flower.server import build_server_app, fleet_recipe, main
from fedfeast.presentation.report import write_report
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.serving.bundle import extract
from fedfeast.serving.choice import Limits

from .conftest import SMALL, LocalGrid


def configure(**config: str) -> Context:
    return Context(1, 1, {}, RecordDict(), dict(config))


def test_a_run_has_the_folder_of_a_simulated_one(grid: LocalGrid, tmp_path: Path) -> None:
    out = tmp_path / "run"
    main(grid, configure(recipe="digits", settings="; ".join(SMALL), out=str(out), track="tensorboard"))
    run = Run.open(out)
    assert any((out / "tracking" / "tensorboard").glob("events.*"))
    assert run.summary["clients"] == run.summary["participating_clients"] == 3
    assert [row["round"] for row in run.folder.metrics()] == [1, 2]
    assert run.summary["traffic"]["planned"]["mean_payload_parameters"] > 0
    log = (out / "fleet.log").read_text()
    assert "client-000 has joined" in log
    assert re.search(r"validation [\d.]+ % \(by size 112\.3k [\d.]+, .* %\)", log)
    write_report([run], out / "report.html")
    assert extract(run, out / "bundle", Limits(max_macs=1e6))["macs"] <= 1e6
    main(grid, configure(recipe="digits", settings="; ".join(SMALL), out=str(out)))  # finished: nothing to do


def test_a_fleet_run_is_saved_every_round_and_has_the_fleets_clients() -> None:
    recipe = fleet_recipe(load_recipe("digits"))
    assert (recipe.population.source, recipe.population.file) == ("fleet", None)
    assert recipe.checkpoint.every_rounds == 1
    assert recipe.training == load_recipe("digits").training


@pytest.mark.parametrize("setting", ["partition.file", "data.split_file"])
def test_files_of_who_holds_what_are_not_for_a_fleet(setting: str) -> None:
    with pytest.raises(InvalidInput, match=f"{setting} = 'mine.csv' is for clients of one machine"):
        fleet_recipe(load_recipe("digits", {setting: "mine.csv"}))


def test_a_fleet_run_is_not_trained_without_its_fleet(grid: LocalGrid, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no client has joined yet"):
        Run.create(fleet_recipe(load_recipe("digits")), tmp_path / "run").train()


def test_a_recipe_file_that_names_code_needs_trust(
    grid: LocalGrid, tmp_path: Path, another_machine: None, new_process: Callable[[], None]
) -> None:
    (tmp_path / "mine.py").write_text("from fedfeast.methods import FedAvg as Mine\n")
    method = f"method.name={tmp_path / 'mine.py'}:Mine"
    recipe, out = tmp_path / "mine.toml", str(tmp_path / "run")
    recipe.write_text(load_recipe("digits", [*SMALL, method]).to_toml())
    new_process()
    with pytest.raises(InvalidInput, match=rf"recipe {recipe} names code to run"):
        main(grid, configure(recipe=str(recipe), out=out))
    assert not (tmp_path / "run").exists()
    main(grid, configure(recipe=str(recipe), out=out, trust="true"))
    new_process()
    assert Run.open(out).recipe.method_name.endswith("mine.py:Mine")
    main(grid, configure(recipe="digits", settings="; ".join([*SMALL, method]), out=str(tmp_path / "named")))


def test_a_wrong_setting_is_said(grid: LocalGrid) -> None:
    with pytest.raises(InvalidInput, match=r"unknown key 'training\.runds'"):
        main(grid, configure(recipe="digits", settings="training.runds=2", out="nowhere"))
    assert build_server_app() is not None


PROGRAM = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c",
     "import time; from fedfeast.flower import server; server.LOOK_SECONDS = 0.05; server.end_with_parent();"
     "print('watching', flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE,
)
child.stdout.readline()
"""


def test_a_process_ends_with_the_one_that_started_it() -> None:
    # The grandchild holds our pipe: it closes when the grandchild has ended, long before it is done sleeping.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert "the SuperLink is gone" in done.stderr
