"""A grid in this process: nodes answer at once, or as a test wants it."""

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun
from tiny import TINY, as_settings

from fedfeast.flower import client

SMALL = [
    *as_settings(TINY),
    "data.validation_examples=900",  # what is left for three clients is little
    "population.num_clients=3",
    "training.clients_per_round=3",
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
            kinds = {"query": client.introduce, "train": client.train, "evaluate": client.evaluate}
            answer = kinds[message.metadata.message_type]
            reply = self.meddle(message, answer(message, context))
            if reply is not None:
                self.replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(one) for one in message_ids if one in self.replies]


def error_reply(message: Message, reason: str = "out of memory") -> Message:
    return Message(Error(2, reason), reply_to=message)
