import logging
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.messages import from_json, to_json
from fedfeast.flower.transport import PendingMessage
from fedfeast.randomness import named_generator
from fedfeast.runs.roster import read_roster

from .conftest import LocalGrid, error_reply

MakeFleet = Callable[..., Fleet]
# What a client may say in any field.
STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    1e400,
    -inf,
    10**300,
    3.5,
    "",
    " ",
    "a\nb",
    "x" * 10**4,
    [],
    {},
    [[]],
    {"a": []},
    "0",
]


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
        (
            {"partition-id": 1, "name": "bad", "recipe": "cifar100-paper"},
            "bad is refused: the server's network is not that of its own recipe",
        ),
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
        ({"held_classes": list(range(100_001))}, "client-001 is refused: its introduction has held_classes"),
        ({"budget_macs": float("inf")}, "client-001 is refused: its introduction has budget_macs = inf"),
        ({"num_examples": 0}, "client-001 is refused: its introduction has num_examples = 0"),
        ({"num_examples": None}, "client-001 is refused: its introduction has num_examples = None"),
        ({"num_examples": 10**4000}, "client-001 is refused: its introduction has num_examples = 1000"),
        ({"num_examples": 200_000}, "it declares 200000 examples, more than fleet.most_examples = 100000"),
        ({"name": "a\nb"}, "a b is refused: its introduction has name"),
        ({"name": "   "}, "is refused: its introduction has name"),
        ({"name": " client-000 "}, "is refused: its introduction has name"),
        ({"name": "x" * 101}, "is refused: its introduction has name"),
        ({"name": ["client-000"]}, "is refused: its introduction has name"),
        ({"more": 1}, "client-001 is refused: its introduction has more = 1"),
        ({"version": {"a": 1}}, "client-001 is refused: it has fedfeast {'a': 1} and the server"),
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
    fleet = make_fleet(grid, "fleet.least_clients=2", "fleet.most_examples=100000")
    assert fleet.gather(0) == {0, 1}
    assert reason in caplog.text
    assert read_roster(fleet.folder.path / "clients.csv") == fleet.roster


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


def test_a_name_belongs_to_the_key_it_was_registered_with(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    grid.registered = {10 + index: (f"client-00{index}", b"key %d" % index) for index in range(3)}
    fleet = make_fleet(grid, "fleet.least_clients=3")
    assert fleet.gather(0) == {0, 1, 2}
    grid.nodes[20] = {**grid.nodes[11], "name": "client-000"}  # another's name, under a registration of its own
    grid.registered[20] = ("garden", b"key 20")
    grid.nodes[21] = {**grid.nodes[11], "name": "client-000"}  # let in without a name
    assert fleet.gather(1) == {0, 1, 2}
    assert "client-000 is refused: it is registered as garden: start it with that name" in caplog.text
    assert "client-000 is refused: the name belongs to a node with another key" in caplog.text
    assert fleet.node_of(fleet.roster.clients[0]) == 10
    # The binding is the run's, not the process's: a server that starts again keeps it.
    again = make_fleet(grid, "fleet.least_clients=3")
    del grid.nodes[10]
    grid.nodes[22] = {"partition-id": 0, "num-partitions": 3}
    again._look_round(2)
    again._admit()
    assert "client-000" not in again._present()


@pytest.mark.parametrize("owner_comes", ["together", "later"])
def test_a_registered_name_is_its_owners_before_it_has_joined(
    grid: LocalGrid, make_fleet: MakeFleet, owner_comes: str
) -> None:
    # Node 30 answers after node 10, whose name it gives; it was registered, without a name of its own.
    grid.nodes[30] = {"partition-id": 1, "num-partitions": 3, "name": "client-000"}
    grid.registered = {10: ("client-000", b"key 0"), 30: ("", b"key 30")}
    fleet = make_fleet(grid, "fleet.least_clients=3")
    owner = grid.nodes[10]
    if owner_comes == "later":
        del grid.nodes[10]
        fleet._look_round(0)
        fleet._look_round(0)  # the thief is known, and nobody was admitted yet
        grid.nodes[10] = owner
    fleet.gather(0)
    assert fleet.node_of(fleet.roster.clients[0]) == 10
    fleet.gather(1)
    assert fleet.node_of(fleet.roster.clients[0]) == 10
    assert set(fleet.nodes_by_name().values()) == {10, 11, 12}


def test_a_thousand_introductions_of_any_kind_end_in_refusals_alone(
    grid: LocalGrid, make_fleet: MakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet, draw = make_fleet(grid, "fleet.least_clients=3"), named_generator(0, "introductions")
    fleet.gather(0)
    honest = {
        "name": "mallory",
        "budget_macs": 2e6,
        "num_examples": 5,
        "held_classes": [],
        "space": fleet.terms.space,
        "version": fleet.terms.version,
    }
    before = fleet.roster
    for number in range(1000):
        content: Any = dict(honest)
        for _ in range(int(draw.integers(1, 4))):
            content[str(draw.choice([*honest, "more"]))] = STRANGE[int(draw.integers(len(STRANGE)))]
        record = to_json(content) if number % 10 else ConfigRecord({"json": "[" * number})
        reply = Message(RecordDict({"introduction": record}), reply_to=grid.pushed[0])
        fleet.hear(PendingMessage(f"m{number}", 1000 + number, "query", 0, inf), reply)
    fleet._admit()
    joined = [client for client in fleet.roster.clients if client not in before.clients]
    assert all(client.name.strip() and 1 <= client.num_examples <= 10**9 for client in joined)
    assert read_roster(fleet.folder.path / "clients.csv") == fleet.roster
    assert len(fleet._refused) > 900
