"""A fleet's clients evaluate what the server holds no example of."""

import logging
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from local_grid import SMALL, LocalGrid, error_reply
from natural_data import natural_recipe

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import ClientEvaluator
from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.engine import FleetClients
from fedfeast.flower.evaluation import asking
from fedfeast.flower.evaluation.asking import FleetEvaluator
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.messages import from_json, to_json
from fedfeast.flower.wire import from_array, to_array
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe import Recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import assemble
from fedfeast.serving.extraction import Extractor

MakeFleet = Callable[..., Fleet]
BY_CLIENTS = ("evaluation.by=clients", "evaluation.client_share=0.2", "fleet.least_clients=3")
Lie = Callable[[dict[str, Any], Any], tuple[dict[str, Any], Any]]


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(asking.LOG, "propagate", True)
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)


def recipe_of(folder: Path, data: str, *settings: str) -> Recipe:
    if data == "digits":
        return load_recipe("digits", [*SMALL, *BY_CLIENTS, *settings])
    return natural_recipe(folder, data, *BY_CLIENTS, 'data.held_out_clients=["dora"]', *settings)


def grid_of(folder: Path) -> LocalGrid:
    return LocalGrid({10 + index: {"partition-id": index, "data-folder": str(folder)} for index in range(3)})


def train(fleet: Fleet) -> Run:
    fleet.gather(0)
    return Run.open(fleet.folder.path).train(client_source=FleetClients(fleet))


@pytest.mark.parametrize(("data", "passes"), [("moves", 2), ("letters", 1), ("digits", 2)])
def test_a_fleet_says_what_simulated_clients_say(tmp_path: Path, make_fleet: MakeFleet, data: str, passes: int) -> None:
    recipe, grid = recipe_of(tmp_path, data), grid_of(tmp_path)
    run = train(make_fleet(grid, recipe=recipe))
    simulated = Run.create(recipe, tmp_path / "simulated").train()
    rows, others = run.folder.metrics(), simulated.folder.metrics()
    scores = [row["validation_score"] for row in rows if "validation_score" in row]
    assert scores == pytest.approx([row["validation_score"] for row in others if "validation_score" in row], abs=1e-9)
    for name, values in simulated.size_history.items():
        assert run.size_history[name] == pytest.approx(values, abs=1e-9)
    assert [row["evaluation"]["answered"] for row in rows if "evaluation" in row] == [[0, 1, 2]] * len(scores)
    ours, theirs = (one.summary["validation_curve"] for one in (run, simulated))
    assert [one["macs"] for one in ours] == [one["macs"] for one in theirs]
    assert [one["value"] for one in ours] == pytest.approx([one["value"] for one in theirs], abs=1e-9)
    assert run.population_score == pytest.approx(simulated.population_score, abs=1e-9)
    asked = [message for message in grid.pushed if message.metadata.message_type == "evaluate"]
    assert len(asked) == 3 * passes * (len(scores) + 1)  # and once more for the summary
    federation = assemble(recipe)
    assert isinstance(federation.validation, ClientEvaluator)
    assert run.folder.clients()[1]["num_examples"] == str(len(federation.validation.clients[1].training))


def test_a_client_is_sent_the_networks_it_affords_and_no_more(tmp_path: Path, make_fleet: MakeFleet) -> None:
    grid = grid_of(tmp_path)
    grid.nodes[10]["budget-macs"] = 150  # the smallest of three
    grid.nodes[11]["budget-macs"] = grid.nodes[12]["budget-macs"] = 250
    run = train(make_fleet(grid, recipe=recipe_of(tmp_path, "moves")))
    sizes = {
        message.metadata.dst_node_id: len(message.content.array_records["weights"]["values"].data) // 8
        for message in grid.pushed
        if message.metadata.message_type == "evaluate"
    }
    assert sizes == {10: 27, 11: 51, 12: 51}
    assert [one["macs"] for one in run.summary["validation_curve"]] == [102, 204]
    assert [point.macs for point in run.curve.points] == [102, 204, 408]  # on the server's test examples


def meddling(node: int, lie: Lie, what: str) -> Callable[[Message, Message], Message]:
    """Return what changes the answers of one node to one kind of question."""

    def meddle(message: Message, reply: Message) -> Message:
        about = message.metadata
        if (about.message_type, about.dst_node_id) != ("evaluate", node):
            return reply
        if from_json(message.content, "order")["what"] != what:
            return reply
        values = from_array(reply.content.array_records["sums"]["values"]) if what == "statistics" else None
        report, changed = lie(from_json(reply.content, "report"), values)
        records = {} if changed is None else {"sums": ArrayRecord({"values": to_array(changed)})}
        return Message(RecordDict({"report": to_json(report), **records}), reply_to=message)

    return meddle


@pytest.mark.parametrize(
    ("what", "lie", "reason"),
    [
        ("totals", lambda said, _: ({**said, "examples": 10**6}, None), "it counts 1000000 examples, and keeps back 6"),
        (
            "totals",
            lambda said, _: ({**said, "totals": said["totals"] * 2}, None),
            "where 1 were asked for",
        ),
        ("totals", lambda said, _: ({**said, "totals": [[99.0, 6.0]]}, None), "more is right than there is"),
        ("totals", lambda said, _: ({**said, "totals": [[nan, 6.0]]}, None), "its report has totals.0.0"),
        ("totals", lambda said, _: ({"totals": "all"}, None), "its report has"),
        ("statistics", lambda said, sums: (said, sums * nan), "not finite or beyond all measure"),
        ("statistics", lambda said, sums: (said, sums[1:]), "its sums are no"),
        ("statistics", lambda said, sums: (said, -sums.abs()), "squares in 1 are below those of their mean"),
        ("statistics", lambda said, sums: ({"examples": 251}, sums), "it sums over 251 examples"),
    ],
)
def test_a_lie_is_refused_and_the_others_count(
    tmp_path: Path, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture, what: str, lie: Lie, reason: str
) -> None:
    grid = grid_of(tmp_path)
    for node in grid.nodes.values():
        node["budget-macs"] = 500
    grid.meddle = meddling(11, lie, what)
    run = train(make_fleet(grid, recipe=recipe_of(tmp_path, "moves", "training.rounds=1")))
    (row,) = run.folder.metrics()
    assert list(row["evaluation"]["refused"]) == ["bert"]
    assert row["evaluation"]["answered"] == ([0, 2] if what == "totals" else [0, 1, 2])
    (told,) = row["evaluation"]["refused"].values()
    assert reason in told
    assert f"the evaluation goes on without the {what} of bert: {told}" in caplog.text


def test_who_does_not_answer_is_left_out_and_too_few_are_asked_again(
    tmp_path: Path, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    grid, evaluated = grid_of(tmp_path), list[int]()

    def fail_at_first(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type != "evaluate":
            return reply
        evaluated.append(message.metadata.dst_node_id)
        if len(evaluated) <= 3:
            return error_reply(message)
        return None if message.metadata.dst_node_id == 12 else reply

    grid.meddle = fail_at_first
    settings = ("training.rounds=1", "fleet.least_clients=1", "fleet.deadline_seconds=1")
    run = train(make_fleet(grid, recipe=recipe_of(tmp_path, "letters", *settings)))
    (row,) = run.folder.metrics()
    assert row["evaluation"] == {"answered": [0, 1], "failed": {"carl": "no answer within 1 s"}}
    assert "the evaluation has 0 answers and is tried again" in caplog.text


def test_when_nobody_answers_the_run_says_so(tmp_path: Path, make_fleet: MakeFleet) -> None:
    grid = grid_of(tmp_path)
    grid.meddle = lambda message, reply: error_reply(message) if message.metadata.message_type == "evaluate" else reply
    with pytest.raises(InvalidInput, match=r"no evaluation after 3 attempts, since too few clients answered"):
        train(make_fleet(grid, recipe=recipe_of(tmp_path, "letters")))


def test_networks_leave_with_the_statistics_that_the_clients_gave(tmp_path: Path, make_fleet: MakeFleet) -> None:
    run = train(make_fleet(grid_of(tmp_path), recipe=recipe_of(tmp_path, "digits")))
    opened = Run.open(run.folder.path)  # without its fleet
    curve, validation = run.curve, run.summary["validation_curve"]
    assert opened.evaluate() == curve
    assert opened.summary["validation_curve"] == validation
    extractor = Extractor(opened)
    point = extractor.points[0]
    kept = opened.statistics_by_clients(opened.best())[point.name]
    extracted = extractor.extract(point)
    assert extracted.facts["calibration"]["by"] == "clients"
    state = extracted.model.state_dict()
    means = [mean.float() for mean, _ in kept.values()]
    assert any(torch.equal(value, means[0]) for name, value in state.items() if name.endswith("running_mean"))


def test_a_method_of_unknown_cost_is_evaluated_by_the_server(tmp_path: Path, make_fleet: MakeFleet) -> None:
    settings = ("method.name=fiarse", "method.num_points=3")
    with pytest.raises(InvalidInput, match="decides by its weights what a network costs"):
        train(make_fleet(grid_of(tmp_path), recipe=recipe_of(tmp_path, "digits", *settings)))


def test_a_client_keeps_back_no_more_than_its_share(tmp_path: Path, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(grid_of(tmp_path), recipe=recipe_of(tmp_path, "moves"))
    fleet.gather(0)
    evaluator = FleetClients(fleet).validation(Run.open(fleet.folder.path).federation)
    assert isinstance(evaluator, FleetEvaluator)
    for client in fleet.roster.clients:
        assert 0 < fleet.kept_back[client.name] <= evaluator.most_kept_back(client)
