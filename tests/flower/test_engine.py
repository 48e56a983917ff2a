import json
import logging
import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from natural_data import CLIENTS, natural_recipe

from fedfeast.evaluation.fairness import Decile
from fedfeast.federation import CentralPrivacy, Engine, Privacy, RoundOrder, spent_centrally, spent_epsilon
from fedfeast.flower import engine as engine_module
from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.engine import FleetClients, FleetEngine
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.messages import from_json, to_json
from fedfeast.flower.wire import to_array
from fedfeast.methods import METHODS
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.runs.training import Silent

from .conftest import SMALL, LocalGrid, error_reply

MakeFleet = Callable[..., Fleet]
# What a client may say in any field.
STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    inf,
    10**300,
    3.5,
    "",
    "x" * 10**4,
    [],
    {},
    {"a": []},
    {"a": [1, 2, 3]},
    {"b": [1, inf]},
    {"student": [10**400, 1]},
    {"student": [1, 10**400]},
]
RULES = {f"a {rule}": [f"aggregation.rule={rule}"] for rule in ("clipped-mean", "trimmed-mean", "median")}
CASES = {method: [f"method.name={method}"] for method in METHODS} | RULES
CASES["fiarse"].append("method.num_points=3")
LABELS = ["method.label_masked_loss=true", "method.label_row_merging=true"]
CASES["feast with momentum"] = [
    *("training.momentum=0.9", "training.last_batch=short", "training.unreached=keep", "training.least_distinct=2"),
]
CASES["feast by what is activated"] = ["aggregation.activated_share=true", "augmentation.mixing=alternate"]
CASES["feast, cheaper"] = [
    *("method.sampling=inverse-macs", "method.smallest_share=0.5", "method.student_batch=0.5"),
    *("method.progressive=1.0", "training.class_prior=1.0", "training.rounds=4"),
]
CASES["heterofl with labels"] = ["method.name=heterofl", *LABELS]


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(engine_module.LOG, "propagate", True)
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)


def train(fleet: Fleet) -> Run:
    fleet.gather(0)
    return Run.open(fleet.folder.path).train(client_source=FleetClients(fleet))


def weights(run: Run) -> torch.Tensor:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    return state.flat


def two_rounds(federation: Federation, engine: Engine) -> tuple[torch.Tensor, int]:
    """Run two rounds with everybody; return the global vector and how many values clients were to be sent."""
    method, flat, state = federation.method, federation.initial_weights(), federation.method.initial_state()
    policy, payload = federation.update_policy(), 0
    for index in range(2):
        generator = named_generator(0, "plan", index)
        assignments, state = method.plan_round(state, flat, federation.clients, index, generator)
        payload += sum(assignment.slice_map.payload for assignment in assignments)
        flat = engine.run_round(RoundOrder(flat, assignments, index, 0.05, policy)).flat
    return flat, payload


def bytes_sent(grid: LocalGrid) -> int:
    sent = [m.content.array_records["weights"] for m in grid.pushed if m.metadata.message_type == "train"]
    return sum(len(array.data) for record in sent for array in record.values())


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_the_fleet_is_an_engine_like_the_eager_one(grid: LocalGrid, make_fleet: MakeFleet, settings: list[str]) -> None:
    fleet = make_fleet(grid, *settings)
    fleet.gather(0)
    federation = Run.open(fleet.folder.path).federation
    over_the_wire, payload = two_rounds(federation, FleetClients(fleet).engine(federation))
    simulated = assemble(load_recipe("digits", [*SMALL, *settings]))
    torch.testing.assert_close(over_the_wire, two_rounds(simulated, simulated.engine())[0], rtol=0, atol=1e-9)
    assert bytes_sent(grid) == 8 * payload


@pytest.mark.parametrize("data", ["moves", "letters"])
def test_the_datas_own_clients_train_a_network_of_ones_own(tmp_path: Path, make_fleet: MakeFleet, data: str) -> None:
    recipe = natural_recipe(tmp_path, data, "fleet.least_clients=3", 'data.held_out_clients=["dora"]')
    grid = LocalGrid({10 + index: {"partition-id": index, "data-folder": str(tmp_path)} for index in range(3)})
    fleet = make_fleet(grid, recipe=recipe)
    run, simulated = train(fleet), Run.create(recipe, tmp_path / "simulated").train()
    torch.testing.assert_close(weights(run), weights(simulated), rtol=0, atol=1e-9)
    assert [client.name for client in fleet.roster.clients] == list(CLIENTS[:3])
    assert run.population_score == pytest.approx(simulated.population_score)
    assert run.folder.metrics()[-1]["validation_score"] == pytest.approx(
        simulated.folder.metrics()[-1]["validation_score"]
    )


def test_half_the_bytes_in_bfloat16(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    run = train(make_fleet(grid, "engine.precision=float32", "fleet.wire=bfloat16"))
    assert bytes_sent(grid) == 2 * sum(row["payload_parameters"] for row in run.folder.metrics())
    assert run.population_score > 0.2


def row_of(run: Run, name: str) -> Decile:
    """Return a client's own row of the fairness table; each holds another number of examples."""
    examples = next(int(row["num_examples"]) for row in run.folder.clients() if row["name"] == name)
    return next(one for one in run.fairness.deciles if one.examples == examples)


def spoil(message: Message, reply: Message) -> Message:
    """Change what one node sends back, in another way every round."""
    about = message.metadata
    if (about.message_type, about.dst_node_id) != ("train", 10):
        return reply
    number = int(about.group_id)
    array = reply.content.array_records["weights"]["values"]
    values = torch.frombuffer(bytearray(array.data), dtype=torch.float64)
    report: dict[str, Any] = from_json(reply.content, "report")
    arrays = {"values": {1: values * torch.nan, 2: values[1:], 3: values.float(), 4: 100 * values}.get(number, values)}
    lies: dict[int, dict[str, Any]] = {5: {"num_examples": 10**6}, 6: {"losses": {"student": [inf, 1]}}}
    report |= lies.get(number, {})
    records = {} if number == 7 else {"weights": ArrayRecord({name: to_array(one) for name, one in arrays.items()})}
    return Message(RecordDict({"report": to_json(report), **records}), reply_to=message)


def test_a_spoiled_answer_is_refused_with_name_and_reason_and_the_round_goes_on(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    grid.meddle = spoil
    run = train(make_fleet(grid, "training.rounds=7", "evaluation.every_rounds=7", "fleet.least_clients=2"))
    reasons = [
        "values are not finite",
        "tensor values has shape",
        "tensor values is of float32 in place of float64",
        "above the bound of",
        "it claims 1000000 examples",
        "its report has losses.student",
        "it has no weights",
    ]
    for row, reason in zip(run.folder.metrics(), reasons, strict=True):
        assert row["answered"] == [1, 2]
        (refused,) = row["refused"]
        assert refused["client"] == "client-000"
        assert reason in refused["reason"]
        assert f"the reply of client client-000 was refused: {refused['reason']}" in caplog.text
    assert run.summary["refused_replies"] == {"count": 7, "by_client": {"client-000": 7}}
    told = row_of(run, "client-000")
    assert (told.asked, told.answered, told.refused, told.late, told.failed) == (7, 0, 7, 0, 0)
    assert run.summary["fairness"] == run.fairness.facts()
    assert bool(torch.isfinite(weights(run)).all())


def test_no_first_round_moves_further_than_training_can(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    def leap(message: Message, reply: Message) -> Message:
        if (message.metadata.message_type, message.metadata.dst_node_id) != ("train", 10):
            return reply
        values = torch.frombuffer(bytearray(reply.content.array_records["weights"]["values"].data), dtype=torch.float32)
        far = ArrayRecord({"values": to_array(torch.full_like(values, 3e38))})
        return Message(RecordDict({"report": reply.content["report"], "weights": far}), reply_to=message)

    grid.meddle = leap
    run = train(make_fleet(grid, "engine.precision=float32", "training.rounds=1"))
    (row,) = run.folder.metrics()
    assert row["answered"] == [1, 2]
    assert "its change has norm" in row["refused"][0]["reason"]


def test_a_thousand_answers_of_any_kind_end_in_refusals_alone(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(grid, "engine.precision=float32")
    fleet.gather(0)
    federation = Run.open(fleet.folder.path).federation
    engine, draw = FleetClients(fleet).engine(federation), named_generator(0, "answers")
    assert isinstance(engine, FleetEngine)
    flat = federation.initial_weights()
    (assignment, *_), _ = federation.method.plan_round({}, flat, federation.clients, 0, named_generator(0))
    order = RoundOrder(flat, [assignment], 0, 0.1)
    this = engine_module._Round(order, order.policy.aggregator(flat, 1, checked=True))
    size = assignment.slice_map.payload
    shapes: list[tuple[int, ...]] = [(), (0,), (-1, -1), (size,), (size, 1), (1,) * 12, (2**62, 4), (size + 1,)]
    shapes.append((0, *[2**31 - 1] * 4))
    for number in range(1000):
        report: Any = {"num_examples": 1, "num_steps": 1, "losses": {"student": [1.0, 1]}}
        report[str(draw.choice([*report, "more"]))] = STRANGE[int(draw.integers(len(STRANGE)))]
        data = bytes(int(draw.choice([0, 4, 4 * size, 4 * size + 1])))
        kind = str(draw.choice(["float32", "float64", "bool", "object", ""]))
        array = Array(kind, shapes[int(draw.integers(len(shapes)))], "fedfeast.raw", data)
        name = str(draw.choice(["values", "other", ""]))
        records = {"report": to_json(report) if number % 7 else ConfigRecord({"json": b"x"})}
        reply = Message(RecordDict({**records, "weights": ArrayRecord({name: array})}), reply_to=grid.pushed[0])
        engine._take(engine_module._Asked(assignment, order), reply, this)
    assert len(this.aggregator.refusals) + len(this.failed) + len(this.answered) >= 900
    assert bool(torch.isfinite(this.aggregator.answers.merged_with(flat)).all())


def test_a_client_that_claims_many_examples_weighs_no_more_than_twice_the_usual(
    grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    def boast(message: Message, reply: Message) -> Message:
        if (message.metadata.message_type, message.metadata.dst_node_id) != ("query", 10):
            return reply
        content = from_json(reply.content, "introduction") | {"num_examples": 10**8}
        return Message(RecordDict({"introduction": to_json(content)}), reply_to=message)

    grid.meddle = boast
    fleet = make_fleet(grid, "aggregation.rule=clipped-mean")
    fleet.gather(0)
    federation = FleetClients(fleet).available(Run.open(fleet.folder.path).federation, 0)
    planned, _ = federation.method.plan_round(
        {}, federation.initial_weights(), federation.clients, 0, named_generator(0)
    )
    assert planned[0].weight == 10**8
    weights = sorted(one.weight for one in federation.update_policy().weighed(planned))
    assert weights[-1] == 2 * weights[1]


def test_private_updates_are_made_on_the_node_and_every_one_asked_for_counts(
    grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    trained = []

    def fail_once(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            trained.append(1)
            report = from_json(reply.content, "report")
            assert report["losses"] == {}  # they would be told without noise
            return error_reply(message) if len(trained) <= 3 else reply
        return reply

    grid.meddle = fail_once
    run = train(make_fleet(grid, "privacy.clip_norm=0.01", "privacy.noise_multiplier=3"))
    spent = run.summary["privacy"]
    assert spent["participations"] == 3  # two rounds, one of them asked for twice
    assert spent["epsilon"] == pytest.approx(spent_epsilon(Privacy(0.01, 3.0), 3))
    asked = [json.loads(line) for line in (run.folder.path / "released.jsonl").read_text().splitlines()]
    assert [one["round"] for one in asked] == [1, 1, 2]
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    # Norms of changes are those of the noise, 3 x 2C on every position.
    deviation = state.norm_history.medians[0] / (run.folder.metrics()[0]["payload_parameters"] / 3) ** 0.5
    assert 0.3 * 0.06 < deviation < 3 * 0.06


class DiesInTheSecondRound(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise RuntimeError("killed")  # after the noise was added, before the round is kept


def test_a_trusted_servers_rounds_count_before_they_are_made_and_again_when_repeated(
    grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    central = ("privacy.mechanism=central", "privacy.clip_norm=0.5", "training.cohort=poisson", "training.rounds=3")
    settings = (*central, "privacy.noise_multiplier=2", "training.clients_per_round=2", "fleet.least_answers=3")
    fleet = make_fleet(grid, *settings)
    fleet.gather(0)
    with pytest.raises(RuntimeError, match="killed"):
        Run.open(fleet.folder.path).train(DiesInTheSecondRound(), FleetClients(fleet))
    noted = fleet.folder.path / "released.jsonl"
    assert [json.loads(line) for line in noted.read_text().splitlines()] == [
        {"round": index, "sampling_rate": pytest.approx(2 / 3)} for index in (1, 2)
    ]
    with noted.open("a") as file:
        file.write('{"round": 2, "sampl')  # not finished when the process died: nothing was made by it
    run = train(fleet)
    assert [json.loads(line)["round"] for line in noted.read_text().splitlines()] == [1, 2, 2, 3]
    spent, rows = run.summary["privacy"], run.folder.metrics()
    assert spent["rounds"] == 4
    assert spent["epsilon"] == spent_centrally(CentralPrivacy(0.5, 2.0), {2 / 3: 4}) == rows[-1]["epsilon"]
    assert all(row["losses"] == {} and "attempts" not in row for row in rows)  # nobody is drawn a second time
    # Every node knows the recipe's seed: neither the noise nor who is drawn may follow from it.
    first = weights(run)
    shutil.rmtree(fleet.folder.path)
    assert not torch.equal(weights(train(make_fleet(grid, *settings))), first)


def test_a_late_answer_is_dropped_and_the_node_is_left_alone_until_then(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[tuple[str, Message]] = []

    def delay(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == "train" and message.metadata.group_id == "2":
            grid.replies.update(dict([held.pop()]) if held else {})  # the first round's answer comes now
        about = message.metadata
        if (about.message_type, about.dst_node_id, about.group_id) == ("train", 12, "1"):
            held.append((f"message-{len(grid.pushed) - 1}", reply))
            return None
        return reply

    grid.meddle = delay
    run = train(make_fleet(grid, "fleet.deadline_seconds=3", "fleet.least_clients=2"))
    assert [row["answered"] for row in run.folder.metrics()] == [[0, 1], [0, 1]]
    assert "no answer within 3 s" in run.folder.metrics()[0]["failed"]["client-002"]
    assert "the answer of client-002 for round 1 came too late and was dropped" in caplog.text
    slowest = row_of(run, "client-002")
    assert (slowest.asked, slowest.answered, slowest.late, slowest.failed) == (1, 0, 1, 0)
    assert (slowest.never_answered, slowest.answer_seconds) == (1, None)
    for row in run.folder.metrics():
        assert sorted(row["answer_seconds"]) == ["client-000", "client-001"]
        assert all(0 <= seconds < 60 for seconds in row["answer_seconds"].values())
    assert [one.answer_seconds for one in run.fairness.deciles].count(None) == 1


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
    run = train(make_fleet(grid, "fleet.least_answers=2", "server.lookahead=0.8", "server.average=0.5"))
    assert run.folder.metrics()[0]["attempts"] == 2
    assert run.folder.metrics()[0]["answered"] == [0, 1, 2]
    assert "round 1 has 1 of the 2 answers it needs and is tried again" in caplog.text


def test_a_fleets_server_looks_ahead_and_a_retry_sends_the_same(
    tmp_path: Path, grid: LocalGrid, make_fleet: MakeFleet
) -> None:
    settings = ["server.lookahead=0.8", "server.average=0.5", "training.rounds=3"]
    sent: dict[int, dict[int, list[bytes]]] = {}

    def fail_every_second(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "train":
            return reply
        number = from_json(message.content, "order")["round_index"]
        weights = b"".join(array.data for array in message.content.array_records["weights"].values())
        tries = sent.setdefault(number, {}).setdefault(message.metadata.dst_node_id, [])
        tries.append(weights)
        return error_reply(message) if number == 2 and len(tries) == 1 else reply

    grid.meddle = fail_every_second
    run = train(make_fleet(grid, "fleet.least_answers=2", *settings))
    assert run.folder.metrics()[-1]["attempts"] == 2
    assert all(len(tries) == 2 and tries[0] == tries[1] for tries in sent[2].values())
    assert sent[1] != sent[2]
    simulated = Run.create(load_recipe("digits", [*SMALL, *settings]), tmp_path / "simulated").train()
    torch.testing.assert_close(weights(run), weights(simulated), rtol=0, atol=1e-9)
    states = [one.folder.checkpoints.load_latest()[0] for one in (run, simulated)]
    assert states[0] is not None
    assert states[1] is not None
    for name in ("before", "average"):
        ours, theirs = (state.server_state[name] for state in states if state is not None)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
