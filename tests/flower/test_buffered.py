"""A fleet whose merges take the first answers: late ones count, with their age, against what they left from."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict

from fedfeast.federation import Privacy, spent_epsilon
from fedfeast.federation.pacing import training_macs
from fedfeast.flower import engine as engine_module
from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.engine import FleetClients
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.server import LoggedProgress
from fedfeast.flower.wire import to_array
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import assemble

from .conftest import SMALL, LocalGrid, error_reply

MakeFleet = Callable[..., Fleet]
BUFFERED = ["fleet.mode=buffered", "fleet.buffer=2", "training.rounds=3", "evaluation.every_rounds=3"]
SLOW = 12  # the node of client 2


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(engine_module.LOG, "propagate", True)
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)


class Slowed:
    """Holds one node's answer to the first round back until a later round has been sent out."""

    def __init__(self, grid: LocalGrid, until_round: int, change: Callable[[Message], Message] = lambda reply: reply):
        self.grid, self.until_round, self.change = grid, until_round, change
        self.held: dict[str, Message] = {}

    def __call__(self, message: Message, reply: Message) -> Message | None:
        about = message.metadata
        if about.message_type != "train":
            return reply
        if int(about.group_id) >= self.until_round:
            self.grid.replies.update(self.held)
            self.held = {}
        if (about.dst_node_id, about.group_id) == (SLOW, "1"):
            self.held[f"message-{len(self.grid.pushed) - 1}"] = self.change(reply)
            return None
        return reply


def train(fleet: Fleet) -> Run:
    fleet.gather(0)
    return Run.open(fleet.folder.path).train(client_source=FleetClients(fleet))


def rows_of(run: Run) -> list[tuple[list[int], list[int], list[int]]]:
    return [(row["clients"], row["answered"], row["ages"]) for row in run.folder.metrics()]


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["aggregation.rule=clipped-mean", "aggregation.weight_cap=2.0"],
        ["aggregation.activated_share=true"],
        ["method.name=fiarse", "method.num_points=3", "server.optimiser=momentum"],
    ],
)
def test_a_fleet_merges_what_the_simulation_merges(
    tmp_path: Path, grid: LocalGrid, make_fleet: MakeFleet, settings: list[str]
) -> None:
    grid.meddle = Slowed(grid, until_round=3)
    run = train(make_fleet(grid, *BUFFERED, *settings))
    assert rows_of(run) == [([0, 1, 2], [0, 1], [0, 0]), ([0, 1], [0, 1], [0, 0]), ([0, 1], [2, 0], [2, 0])]
    # In the simulation client 2 takes as long as two merges and a half; norms are looked at as on a fleet.
    words = [*SMALL, *BUFFERED, *settings, "aggregation.refuse_multiple=10.0"]
    federation = assemble(load_recipe("digits", words))
    flat = federation.initial_weights()
    planned, _ = federation.method.plan_round({}, flat, federation.clients, 0, named_generator(0, "plan", 0))
    seconds = (1.0, 1.0001, 2.5)
    speeds = [training_macs(federation.method, one, federation.preparation) for one in planned]
    rows = [f"client-{index:03d},{speeds[index] / seconds[index]!r}" for index in range(3)]
    (tmp_path / "speeds.csv").write_text("\n".join(["name,macs_per_second", *rows]) + "\n")
    simulated = Run.create("digits", tmp_path / "simulated", [*words, f"simulation.speeds={tmp_path}/speeds.csv"])
    simulated.train()
    assert rows_of(simulated) == rows_of(run)
    states = [one.folder.checkpoints.load_latest()[0] for one in (run, simulated)]
    assert states[0] is not None
    assert states[1] is not None
    torch.testing.assert_close(states[0].flat, states[1].flat, rtol=0, atol=1e-9)
    assert states[0].norm_history.medians == pytest.approx(states[1].norm_history.medians)
    for key in ("payload_parameters", "returned_parameters"):
        assert [row[key] for row in run.folder.metrics()] == [row[key] for row in simulated.folder.metrics()]


def test_the_log_says_how_old_answers_were(caplog: pytest.LogCaptureFixture) -> None:
    row = {
        "round": 3,
        "clients": [1],
        "answered": [2, 0],
        "ages": [2, 0],
        "seconds": 1.0,
        "bytes_down": 1000,
        "bytes_up": 2000,
        "losses": {},
    }
    LoggedProgress().on_round(row)
    assert "1 asked, 2 answers merged (of age 2, 0) in 1.0 s" in caplog.text


def test_an_answer_that_comes_while_nobody_waits_counts_in_the_next_merge(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = make_fleet(grid, *BUFFERED)
    slowed = grid.meddle = Slowed(grid, until_round=99)
    look_round = fleet._look_round

    def release(round_index: int) -> None:
        if round_index == 1:
            grid.replies.update(slowed.held)
        look_round(round_index)

    fleet._look_round = release  # type: ignore[method-assign]
    run = train(fleet)
    assert rows_of(run)[1] == ([0, 1, 2], [2, 0], [1, 0])  # it is free again, and asked beside the others
    assert "came too late" not in caplog.text


def test_a_late_answer_that_moves_too_far_is_refused_and_the_merge_waits_for_another(
    grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    def enlarge(reply: Message) -> Message:
        data = reply.content.array_records["weights"]["values"].data
        values = torch.frombuffer(bytearray(data), dtype=torch.float64)
        weights = ArrayRecord({"values": to_array(100 * values)})
        return Message(RecordDict({"report": reply.content["report"], "weights": weights}), reply_to=grid.pushed[0])

    grid.meddle = Slowed(grid, until_round=3, change=enlarge)
    run = train(make_fleet(grid, *BUFFERED))
    last = run.folder.metrics()[-1]
    assert (last["answered"], last["ages"]) == ([0, 1], [0, 0])
    assert last["refused"][0]["client"] == "client-002"
    assert "above the bound" in last["refused"][0]["reason"]
    assert run.summary["refused_replies"]["by_client"] == {"client-002": 1}


def test_who_never_answers_is_given_up_at_its_deadline_and_asked_again(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    silent: list[str] = []

    def swallow(message: Message, reply: Message) -> Message | None:
        about = message.metadata
        if about.message_type == "train" and about.dst_node_id == SLOW and not silent:
            silent.append(about.group_id)
            return None
        return reply

    grid.meddle = swallow
    run = train(make_fleet(grid, *BUFFERED, "fleet.buffer=3", "fleet.deadline_seconds=0.5"))
    first, second, *_ = run.folder.metrics()
    assert (first["answered"], first["failed"]) == ([0, 1], {"client-002": "no answer within 0.5 s"})
    assert second["answered"] == second["clients"] == [0, 1, 2]


def test_too_few_answers_are_kept_for_the_next_attempt(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    failing = {10, 11}

    def fail_once(message: Message, reply: Message) -> Message:
        node = message.metadata.dst_node_id
        if message.metadata.message_type == "train" and node in failing:
            failing.discard(node)
            return error_reply(message)
        return reply

    grid.meddle = fail_once
    run = train(make_fleet(grid, *BUFFERED, "fleet.least_answers=2"))
    first = run.folder.metrics()[0]
    assert first["attempts"] == 2
    assert first["answered"][0] == 2  # of the first attempt
    assert len(first["answered"]) == 2


def test_a_killed_server_goes_on_after_its_last_merge_and_counts_every_update_asked_for(
    grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    class Killed(BaseException):
        pass

    def kill(message: Message, reply: Message) -> Message | None:
        about = message.metadata
        if (about.message_type, about.group_id) == ("train", "3"):
            raise Killed
        return None if (about.message_type, about.dst_node_id) == ("train", SLOW) else reply

    settings = [*BUFFERED, "privacy.clip_norm=0.01", "privacy.noise_multiplier=3"]
    grid.meddle = kill
    fleet = make_fleet(grid, *settings)
    with pytest.raises(Killed):
        train(fleet)
    grid.meddle = lambda message, reply: reply
    grid.replies.clear()  # what was under way belongs to a run of Flower that is gone
    run = train(make_fleet(grid, *settings))
    asked: list[Any] = [json.loads(line) for line in (run.folder.path / "released.jsonl").read_text().splitlines()]
    assert [(one["round"], one["clients"]) for one in asked] == [
        (1, [0, 1, 2]),
        (2, [0, 1]),
        (3, [0, 1]),
        (3, [0, 1, 2]),
    ]
    assert rows_of(run)[-1] == ([0, 1, 2], [0, 1], [0, 0])
    assert run.summary["privacy"]["participations"] == 4
    assert run.summary["privacy"]["epsilon"] == pytest.approx(spent_epsilon(Privacy(0.01, 3.0), 4))
