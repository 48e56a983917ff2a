import logging
from collections.abc import Callable

import pytest
from flwr.app import Message, RecordDict

from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.messages import from_json, to_json

from .conftest import LocalGrid, error_reply

MakeFleet = Callable[..., Fleet]


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(fleet_module.LOG, "propagate", True)
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)


def test_those_who_arrive_together_are_numbered_by_name(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    grid.nodes = dict(reversed(grid.nodes.items()))
    fleet = make_fleet(grid)
    assert fleet.gather(0) == {0, 1, 2}
    assert [client.name for client in fleet.roster.clients] == ["client-000", "client-001", "client-002"]
    assert [fleet.node_of(client) for client in fleet.roster.clients] == [10, 11, 12]
    assert len(grid.pushed) == 3  # each is asked once
    fleet.gather(1)
    assert len(grid.pushed) == 3
    assert [row["name"] for row in fleet.folder.clients()] == ["client-000", "client-001", "client-002"]


def test_names_keep_their_index_over_restarts(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    first = make_fleet(grid, "fleet.least_clients=1")
    grid.nodes = {12: grid.nodes[12]}
    assert first.gather(0) == {0}
    grid.nodes = {node: {"partition-id": index} for index, node in enumerate((50, 51, 52))}
    again = make_fleet(grid, "fleet.least_clients=1")
    again.gather(0)
    assert [client.name for client in again.roster.clients] == ["client-002", "client-000", "client-001"]
    assert [client.index for client in again.roster.clients] == [0, 1, 2]


def test_a_late_joiner_and_one_who_leaves(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = make_fleet(grid, "fleet.least_clients=1")
    late = grid.nodes.pop(10)
    assert len(fleet.gather(0)) == 2
    grid.nodes[10] = late
    assert fleet.gather(1) == {0, 1, 2}
    del grid.nodes[11]
    assert fleet.gather(2) == {1, 2}
    assert "client-001 has left" in caplog.text
    assert "client-000 has joined" in caplog.text


def test_a_restarted_node_may_have_another_number(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(grid, "fleet.least_clients=1")
    fleet.gather(0)
    grid.nodes[99] = grid.nodes[10]
    assert fleet.gather(1) == {0, 1, 2}
    assert fleet.node_of(fleet.roster.clients[0]) == 99


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"name": "bad", "data": "json:dumps"}, "bad is refused: it has no budget"),
        ({"partition-id": 1, "name": "bad", "budget-macs": 10}, "bad is refused: its budget of 10 MACs is below"),
        ({"name": "bad", "budget-macs": 1e6}, "bad is refused: it has no data"),
        ({"partition-id": 1, "name": "bad", "recipe": "cifar100-paper"}, "bad is refused: its network is another one"),
        ({}, "node 20 is refused: it has no name"),
    ],
)
def test_who_cannot_take_part_is_refused_and_the_others_go_on(
    grid: LocalGrid,
    make_fleet: MakeFleet,
    caplog: pytest.LogCaptureFixture,
    config: dict[str, str | int],
    reason: str,
) -> None:
    grid.nodes[20] = config
    assert make_fleet(grid).gather(0) == {0, 1, 2}
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"version": "0.0.9"}, "client-001 is refused: it has fedfeast 0.0.9 and the server 0.1.0"),
        ({"held_classes": [10]}, "client-001 is refused: it holds classes beyond the 10"),
        ({"budget_macs": float("inf")}, "client-001 is refused: its budget is inf"),
        ({"num_examples": 0}, "client-001 is refused: it has no examples"),
        ({"num_examples": None}, "node 11 is refused: its introduction is unreadable"),
        ({"num_examples": float("inf")}, "node 11 is refused: its introduction is unreadable"),
        ({"name": "a\nb"}, "a b is refused: its name is no line"),
        ({"problem": "it\nbroke"}, "client-001 is refused: it broke"),
    ],
)
def test_an_introduction_that_cannot_be_is_refused(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture, told: dict[str, object], reason: str
) -> None:
    def lie(message: Message, reply: Message) -> Message:
        content = from_json(reply.content, "introduction")
        if content["name"] == "client-001":
            content |= told
        return Message(RecordDict({"introduction": to_json(content)}), reply_to=message)

    grid.meddle = lie
    assert make_fleet(grid, "fleet.least_clients=2").gather(0) == {0, 1}
    assert reason in caplog.text


def test_classes_are_told_where_the_method_asks(grid: LocalGrid, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(grid)
    fleet.gather(0)
    assert {client.held_classes for client in fleet.roster.clients} == {()}


def test_with_nobody_there_the_server_waits_and_says_so(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "SAY_SECONDS", 0.05)
    fleet, nodes = make_fleet(grid), grid.nodes
    grid.nodes = {}
    calls = []

    def online() -> list[int]:
        calls.append(1)
        if len(calls) == 20:
            grid.nodes = nodes
        return list(grid.nodes)

    grid.get_node_ids = online  # type: ignore[method-assign]
    assert fleet.gather(0) == {0, 1, 2}
    assert "round 1 waits for clients: 0 of 3 are there" in caplog.text


def test_a_node_that_fails_to_introduce_itself_is_named(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "QUERY_SECONDS", 0.1)
    grid.meddle = lambda message, reply: error_reply(message) if message.metadata.dst_node_id == 10 else reply
    assert make_fleet(grid, "fleet.least_clients=2").gather(0) == {0, 1}
    assert "node 10 did not say who it is: error 2: out of memory" in caplog.text
