"""Messages under way over Flower's Grid: sent one by one, answers taken one by one, so that memory holds one."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid


@dataclass(frozen=True)
class PendingMessage:
    """A message that was sent and not yet answered."""

    message_id: str
    node_id: int
    kind: str  # query, train or evaluate
    round_index: int
    expires: float  # by time.monotonic(); no answer is taken afterwards


@dataclass(frozen=True)
class Registration:
    """Under which name and key a node was registered; empty where whoever comes is let in."""

    name: str = ""
    key: str = ""  # the SHA-256 of the public key


class Transport:
    """Sends messages to nodes and hands out their answers as they arrive, late ones too."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._waiting: dict[str, PendingMessage] = {}
        self._registrations: dict[int, Registration] = {}  # asked for once a look, however many nodes are new

    def nodes(self) -> set[int]:
        """Return the nodes that are connected."""
        self._registrations.clear()
        return set(self._grid.get_node_ids())

    def registration(self, node_id: int) -> Registration:
        """Return under which name and key a connected node was registered."""
        return self._registered().get(node_id, Registration())

    def key_of(self, name: str) -> str:
        """Return the key that a connected node was registered with under a name; empty where none was."""
        return next((one.key for one in self._registered().values() if one.name == name), "")

    def _registered(self) -> dict[int, Registration]:
        if not self._registrations:
            for node in self._grid.get_nodes():
                key = hashlib.sha256(node.public_key).hexdigest() if node.public_key else ""
                self._registrations[node.node_id] = Registration(node.name, key)
        return self._registrations

    def send(
        self, node_id: int, kind: str, round_index: int, content: RecordDict, patience: float
    ) -> PendingMessage | None:
        """Send one message that may be answered for so many seconds; None where it could not be delivered."""
        message = Message(content, node_id, kind, ttl=patience, group_id=str(round_index + 1))
        ids = list(self._grid.push_messages([message]))
        if not ids or not ids[0]:
            return None
        pending = PendingMessage(ids[0], node_id, kind, round_index, time.monotonic() + patience)
        self._waiting[pending.message_id] = pending
        return pending

    def arrivals(self) -> Iterator[tuple[PendingMessage, Message]]:
        """Yield every answer that is there; what has expired is given up."""
        for pending in list(self._waiting.values()):
            # One message a request: several would be held in memory at once.
            for reply in self._grid.pull_messages([pending.message_id]):
                del self._waiting[pending.message_id]
                yield pending, reply
                break
            else:
                if time.monotonic() > pending.expires:
                    del self._waiting[pending.message_id]

    def is_waiting(self, message_id: str) -> bool:
        """Return whether a message may still be answered."""
        return message_id in self._waiting

    def waiting(self, kind: str) -> list[PendingMessage]:
        """Return the messages that wait for an answer of a kind."""
        return [pending for pending in self._waiting.values() if pending.kind == kind]
