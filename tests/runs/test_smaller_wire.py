"""Runs over a smaller wire: bytes are counted, what is remembered survives a stop, and by default nothing changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY

from fedfeast.errors import InvalidInput
from fedfeast.planning import plan_recipe
from fedfeast.presentation.plan_tables import describe_plans
from fedfeast.presentation.tables import bytes_facts
from fedfeast.recipes import load_recipe
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.training import Silent

SHORT: dict[str, Any] = {
    **TINY,
    "training.rounds": 4,
    "training.clients_per_round": 4,
    "evaluation.every_rounds": 4,
    "checkpoint.every_rounds": 2,
}
SMALL = {**SHORT, "wire.down": "int8", "wire.down_deltas": True, "wire.up": "int8", "wire.up_topk": 0.2}


class StopAfter(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt


def test_what_is_remembered_of_clients_survives_a_stop(tmp_path: Path) -> None:
    unbroken = Run.create("digits", tmp_path / "unbroken", SMALL).train()
    with pytest.raises(Interrupted):
        Run.create("digits", tmp_path / "broken", SMALL).train(StopAfter())
    broken = Run.create("digits", tmp_path / "broken", SMALL).train()
    files = [run.folder.path / "checkpoints" / "round-000004.safetensors" for run in (unbroken, broken)]
    kept, kept_again = (load_file(file) for file in files)  # metadata tell the length of metrics, where seconds stand
    assert kept.keys() == kept_again.keys()
    assert all(torch.equal(one, kept_again[name]) for name, one in kept.items())
    state, _ = unbroken.folder.checkpoints.load_latest()
    assert state is not None
    assert all(one.residual is not None and one.held is not None for one in state.wire_memory.clients.values())


def test_bytes_are_counted_and_said(tmp_path: Path) -> None:
    plain = Run.create("digits", tmp_path / "plain", SHORT).train()
    rows = plain.folder.metrics()
    assert all(row["bytes_down"] == row["bytes_up"] == 4 * row["payload_parameters"] for row in rows)
    small = Run.create("digits", tmp_path / "small", SMALL).train()
    traffic = small.summary["traffic"]
    assert traffic["bytes_down"] == sum(row["bytes_down"] for row in small.folder.metrics())
    assert traffic["bytes_down"] < 0.29 * plain.summary["traffic"]["bytes_down"]
    assert traffic["bytes_up"] < 0.15 * plain.summary["traffic"]["bytes_up"]
    ((_, said),) = bytes_facts(traffic)
    assert "to clients" in said
    assert bytes_facts({}) == []  # a run of an earlier version


def test_memory_has_a_limit(tmp_path: Path) -> None:
    few = Run.create("digits", tmp_path / "few", {**SMALL, "wire.state_gib": 1e-9}).train()
    state, _ = few.folder.checkpoints.load_latest()
    assert state is not None
    assert not state.wire_memory.clients


def test_a_plan_counts_bytes_each_way_and_what_is_remembered() -> None:
    plain, small = (plan_recipe(load_recipe("digits", one))["traffic"] for one in (SHORT, SMALL))
    assert plain["round_gigabytes_down"] == plain["round_gigabytes_up"]
    assert plain["round_gigabytes"] == pytest.approx(8e-9 * plain["mean_payload_parameters"] * 4)
    assert "remembered_gigabytes" not in plain
    assert small["round_gigabytes_down"] < 0.29 * plain["round_gigabytes_down"]
    assert small["remembered_gigabytes"] > 0
    assert describe_plans([plan_recipe(load_recipe("digits", SMALL))])


def test_two_names_of_one_thing_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fleet.wire = 'bfloat16' and \[wire\] set the same thing"):
        load_recipe("digits", {"fleet.wire": "bfloat16", "wire.up": "int8"})
    with pytest.raises(InvalidInput, match=r"wire.up = 'int4'"):
        load_recipe("digits", {"wire.up": "int4"})
    with pytest.raises(InvalidInput, match=r"wire.down_deltas = true saves nothing"):
        load_recipe("digits", {"wire.down_deltas": True})


def test_central_privacy_wants_a_wire_without_memory() -> None:
    central = {"privacy.clip_norm": 1.0, "privacy.mechanism": "central", "wire.up": "int8"}
    with pytest.raises(InvalidInput, match=r"remember nothing of earlier ones: set wire.error_feedback=false"):
        load_recipe("digits", central)
    with pytest.raises(InvalidInput, match=r"wire.up_topk = 0.1 lets clients choose"):
        load_recipe("digits", {**central, "wire.error_feedback": False, "wire.up_topk": 0.1})


def test_float32_is_what_the_weights_are(tmp_path: Path) -> None:
    settings = {**SHORT, "training.rounds": 1}
    named = {**settings, "wire.down": "float32", "wire.up": "float32"}
    runs = [Run.create("digits", tmp_path / str(place), one).train() for place, one in enumerate((settings, named))]
    states = [run.folder.checkpoints.load_latest()[0] for run in runs]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0].flat, states[1].flat)
