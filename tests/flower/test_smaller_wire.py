"""A smaller wire over a fleet: the same weights as in simulation, fewer bytes, and nothing that a client may spoil."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from torch import Tensor

from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.engine import FleetClients
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.messages import from_json, to_json
from fedfeast.flower.wire import from_array, to_array
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run

from .conftest import SMALL, LocalGrid

MakeFleet = Callable[..., Fleet]
DELTAS = ["wire.down=int8", "wire.down_deltas=true"]
CASES = {
    "int8 back": ["wire.up=int8"],
    "int8 both ways, differences": [*DELTAS, "wire.up=int8"],
    "int8 to clients, all of it back": ["wire.down=int8"],
    "the largest values, weights capped": ["wire.up=bfloat16", "wire.up_topk=0.1", "aggregation.weight_cap=2.0"],
    "float32 of float64": ["wire.down=float32", "wire.up=float32"],
    "fedrolex, whose slices move": ["method.name=fedrolex", *DELTAS, "wire.up=int8"],
    "fiarse, whose positions are masked": ["method.name=fiarse", "method.num_points=3", *DELTAS, "wire.up=int8"],
}


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDFEAST_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)


def train(fleet: Fleet) -> Run:
    fleet.gather(0)
    return Run.open(fleet.folder.path).train(client_source=FleetClients(fleet))


def weights(run: Run) -> Tensor:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    return state.flat


def orders(grid: LocalGrid) -> list[dict[str, Any]]:
    return [from_json(one.content, "order") for one in grid.pushed if one.metadata.message_type == "train"]


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_the_fleet_is_as_the_simulation(
    grid: LocalGrid, make_fleet: MakeFleet, tmp_path: Path, settings: list[str]
) -> None:
    run = train(make_fleet(grid, *settings))
    simulated = Run.create(load_recipe("digits", [*SMALL, *settings]), tmp_path / "simulated").train()
    torch.testing.assert_close(weights(run), weights(simulated), rtol=0, atol=1e-9)
    assert not [row for row in run.folder.metrics() if "refused" in row or "failed" in row]
    for real, counted in zip(run.folder.metrics(), simulated.folder.metrics(), strict=True):
        # Of a real message the terms, the order and the description of the slice count too.
        assert real["bytes_down"] > counted["bytes_down"]
        assert counted["bytes_up"] < real["bytes_up"] < counted["bytes_up"] + 1000


def test_differences_go_to_those_alone_who_hold_what_they_are_to(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    train(make_fleet(grid, *DELTAS, "training.rounds=3"))
    assert ["base_sha256" in one for one in orders(grid)] == [*[False] * 3, *[True] * 6]


def test_a_node_that_lost_its_folder_is_sent_whole_weights_in_the_same_round(
    grid: LocalGrid, make_fleet: MakeFleet, tmp_path: Path
) -> None:
    def lose(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "1":
            for file in (tmp_path / "home").rglob("wire.safetensors"):
                file.unlink()
        return reply

    grid.meddle = lose
    run = train(make_fleet(grid, *DELTAS, "wire.up=int8", "training.rounds=2"))
    assert [row["answered"] for row in run.folder.metrics()] == [[0, 1, 2], [0, 1, 2]]
    assert len(orders(grid)) == 9  # three, three differences, and three whole ones in their place
    rows = run.folder.metrics()
    assert rows[1]["bytes_down"] > 1.9 * rows[0]["bytes_down"]


def test_a_client_that_asks_for_whole_weights_for_ever_is_asked_no_more(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    def whine(message: Message, reply: Message) -> Message:
        if (message.metadata.message_type, message.metadata.dst_node_id) == ("train", 10):
            report = {"problem": "no", "needs_whole": True}
            return Message(RecordDict({"report": to_json(report)}), reply_to=message)
        return reply

    grid.meddle = whine
    run = train(make_fleet(grid, *DELTAS, "training.rounds=2", "fleet.least_clients=2"))
    assert all(row["failed"] == {"client-000": "no"} for row in run.folder.metrics())


def spoiled(number: int, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    scales, values = arrays["scales"], arrays["values"]
    return {
        1: {**arrays, "scales": scales * torch.inf},
        2: {**arrays, "scales": -1 - scales},
        3: {**arrays, "values": torch.full_like(values, -128)},
        4: {**arrays, "scales": torch.full_like(scales, 3e38)},
        5: {**arrays, "scales": scales[1:]},
        6: {"values": values.to(torch.float64)},
        7: {**arrays, "scales": 1e4 * scales + 1},
    }[number]


def test_a_spoiled_answer_is_refused_and_the_round_goes_on(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    def spoil(message: Message, reply: Message) -> Message:
        about = message.metadata
        if (about.message_type, about.dst_node_id) != ("train", 10):
            return reply
        sent = {name: from_array(one) for name, one in reply.content.array_records["weights"].items()}
        arrays = {name: to_array(one) for name, one in spoiled(int(about.group_id), sent).items()}
        return Message(
            RecordDict({"report": reply.content["report"], "weights": ArrayRecord(arrays)}), reply_to=message
        )

    grid.meddle = spoil
    settings = ["wire.up=int8", "training.rounds=7", "evaluation.every_rounds=7", "fleet.least_clients=2"]
    run = train(make_fleet(grid, *settings, "engine.precision=float32"))
    reasons = [
        "its scales are not finite numbers",
        "its scales are not finite numbers from 0 on",
        "values of int8 below -127",
        "",
        "tensor scales has shape",
        "bytes of weights where there can be",
        "its change has norm",
    ]
    for row, reason in zip(run.folder.metrics(), reasons, strict=True):
        assert row["answered"] == [1, 2]
        (refused,) = row["refused"]
        assert refused["client"] == "client-000"
        assert reason in refused["reason"]
    assert bool(torch.isfinite(weights(run)).all())


def test_noise_comes_before_rounding(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    settings = ["wire.up=int8", "wire.up_topk=0.5", "privacy.clip_norm=0.1", "privacy.noise_multiplier=0.01"]
    run = train(make_fleet(grid, *settings, "engine.precision=float32"))
    assert all(row["answered"] == [0, 1, 2] for row in run.folder.metrics())
    assert not any("refused" in row for row in run.folder.metrics())
