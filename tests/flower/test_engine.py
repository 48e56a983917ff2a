import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict

from fedfeast.federation import TooFewAnswers
from fedfeast.flower import engine as engine_module
from fedfeast.flower.engine import FleetEngine, FleetWorkforce
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.wire import to_array
from fedfeast.methods import METHODS
from fedfeast.runs import Run

from .conftest import SMALL, LocalGrid, error_reply

MakeFleet = Callable[..., Fleet]


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(engine_module.LOG, "propagate", True)
    monkeypatch.setattr(engine_module, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)


def train(fleet: Fleet) -> Run:
    fleet.gather(0)
    return Run.open(fleet.folder.path).train(workforce=FleetWorkforce(fleet))


def weights(run: Run) -> torch.Tensor:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    return state.flat


def spoil(values: Callable[[torch.Tensor], torch.Tensor], node: int = 10) -> Callable[[Message, Message], Message]:
    """Return a meddler that changes what one node sends back."""

    def meddle(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == node:
            array = reply.content.array_records["weights"]["values"]
            spoiled = values(torch.frombuffer(bytearray(array.data), dtype=torch.float64))
            records = {**reply.content.config_records, "weights": ArrayRecord({"values": to_array(spoiled)})}
            return Message(RecordDict(records), reply_to=message)  # type: ignore[arg-type]
        return reply

    return meddle


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_fleet_is_an_engine_like_the_eager_one(
    grid: LocalGrid, make_fleet: MakeFleet, tmp_path: Path, method: str
) -> None:
    settings = [f"method.name={method}", *(["method.num_points=3"] if method == "fiarse" else [])]
    run = train(make_fleet(grid, *settings))
    simulated = Run.create("digits", tmp_path / "simulated", [*SMALL, *settings]).train()
    torch.testing.assert_close(weights(run), weights(simulated), rtol=0, atol=1e-9)
    assert run.population_score == simulated.population_score
    assert bytes_sent(grid) == 8 * sum(row["payload_parameters"] for row in run.folder.metrics())


def bytes_sent(grid: LocalGrid) -> int:
    sent = [m.content.array_records["weights"] for m in grid.pushed if m.metadata.message_type == "train"]
    return sum(len(array.data) for record in sent for array in record.values())


def test_half_the_bytes_in_bfloat16(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    run = train(make_fleet(grid, "engine.precision=float32", "fleet.wire=bfloat16"))
    assert bytes_sent(grid) == 2 * sum(row["payload_parameters"] for row in run.folder.metrics())
    assert run.population_score > 0.2


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (lambda values: values.fill_(torch.nan), "values that are not finite"),
        (lambda values: values[1:], "instead of float64 of shape"),
        (lambda values: values.float(), "float32 of shape"),
    ],
)
def test_a_spoiled_answer_is_left_out_with_its_reason(
    grid: LocalGrid,
    make_fleet: MakeFleet,
    caplog: pytest.LogCaptureFixture,
    values: Callable[[torch.Tensor], torch.Tensor],
    reason: str,
) -> None:
    grid.meddle = spoil(values)
    run = train(make_fleet(grid))
    for row in run.folder.metrics():
        assert row["answered"] == [1, 2]
        assert reason in row["failed"]["client-000"]
    assert "round 1 goes on without client-000" in caplog.text
    assert bool(torch.isfinite(weights(run)).all())


def test_a_late_answer_is_dropped_and_the_node_is_left_alone_until_then(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[tuple[str, Message]] = []

    def delay(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == "train" and message.metadata.group_id == "2":
            grid.replies.update(dict([held.pop()]) if held else {})  # the first round's answer comes now
        about = message.metadata
        if (about.message_type, about.dst_node_id, about.group_id) == ("train", 10, "1"):
            held.append((f"message-{len(grid.pushed) - 1}", reply))
            return None
        return reply

    grid.meddle = delay
    run = train(make_fleet(grid, "fleet.deadline_seconds=0.6", "fleet.least_clients=2"))
    assert [row["answered"] for row in run.folder.metrics()] == [[1, 2], [1, 2]]
    assert "no answer within 0.6 s" in run.folder.metrics()[0]["failed"]["client-000"]
    assert "the answer of client-000 for round 1 came too late and was dropped" in caplog.text


def test_too_few_answers_and_the_round_is_tried_again(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    trained = []

    def fail_once(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "train":
            return reply
        trained.append(1)
        return error_reply(message) if len(trained) <= 2 else reply

    grid.meddle = fail_once
    run = train(make_fleet(grid, "fleet.least_answers=2"))
    assert run.folder.metrics()[0]["attempts"] == 2
    assert run.folder.metrics()[0]["answered"] == [0, 1, 2]
    assert "round 1 has 1 of the 2 answers it needs and is tried again" in caplog.text


def test_a_check_of_ones_own_decides(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(grid)
    fleet.gather(0)
    federation = Run.open(fleet.folder.path).federation
    seen = []

    def check(assignment: object, sent: torch.Tensor, answer: engine_module.Answer) -> str:
        seen.append((len(sent), len(answer.weights), answer.num_examples))
        return "no"

    engine = FleetEngine(federation.method, fleet, federation.dtype, check)
    flat = federation.initial_weights()
    assignments, _ = federation.method.plan_round({}, flat, federation.clients, 0, None)  # type: ignore[arg-type]
    with pytest.raises(TooFewAnswers):
        engine.collect(flat, assignments, 0, 0.1)
    assert [one[2] for one in seen] == [client.num_examples for client in federation.clients]
    assert all(sent == received for sent, received, _ in seen)
