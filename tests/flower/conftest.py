"""A grid in this process: nodes answer at once, or as a test wants it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity
from tiny import TINY, as_settings

from fedfeast.flower import client
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.server import fleet_recipe
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import Transport
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import split_data

SMALL = [
    *as_settings(TINY),
    "data.validation_examples=900",  # what is left for three clients is little
    "population.num_clients=3",
    "training.rounds=2",
    "training.batch_size=64",
    "evaluation.every_rounds=2",
    "engine.precision=float64",
    "fleet.least_clients=3",
]


class LocalGrid(Grid):
    """Runs the client's functions when a message is pushed; a reply waits until it is pulled."""

    def __init__(self, nodes: dict[int, dict[str, Any]]) -> None:
        self.nodes = nodes
        self.registered: dict[int, tuple[str, bytes]] = {}  # under which name and key
        self.pushed: list[Message] = []
        self.replies: dict[str, Message] = {}
        self.meddle: Callable[[Message, Message], Message | None] = lambda message, reply: reply

    def set_run(self, run: FlowerRun) -> None:
        raise NotImplementedError

    @property
    def run(self) -> FlowerRun:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise AssertionError("never used: it waits for all and sleeps")

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        known = {node: self.registered.get(node, ("", b"")) for node in self.nodes}
        return [NodeInfo(node_id=node, name=name, public_key=key) for node, (name, key) in known.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            ids.append(f"message-{len(self.pushed)}")
            self.pushed.append(message)
            node = message.metadata.dst_node_id
            context = Context(1, node, self.nodes[node], RecordDict(), {})
            answer = client.introduce if message.metadata.message_type == "query" else client.train
            reply = self.meddle(message, answer(message, context))
            if reply is not None:
                self.replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(one) for one in message_ids if one in self.replies]


@pytest.fixture(autouse=True)
def inside_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can be made only inside a Flower task; pretend to be in one."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)


@pytest.fixture
def grid() -> LocalGrid:
    return LocalGrid({10 + index: {"partition-id": index, "num-partitions": 3} for index in range(3)})


@pytest.fixture
def make_fleet(tmp_path: Path) -> Callable[..., Fleet]:
    def make(grid: LocalGrid, *settings: str, recipe: Recipe | None = None) -> Fleet:
        base = recipe or load_recipe("digits", [*SMALL, *settings])
        run = Run.create(fleet_recipe(base), tmp_path / "run")
        method, _ = build_method(base)
        terms = Terms.of(base, method, split_data(base).normalisation, ())
        return Fleet(Transport(grid), run.folder, method, terms, base.fleet)

    return make


def error_reply(message: Message, reason: str = "out of memory") -> Message:
    return Message(Error(2, reason), reply_to=message)
