"""The nodes of a running fleet: who they are, who may train, and who is there now."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import Message, RecordDict

from fedfeast.federation import Client, Method
from fedfeast.flower.messages import Introduction, Unreadable, from_json, one_line, to_json
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import PendingMessage, Registration, Transport
from fedfeast.recipes.sections import FleetSection
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.roster import Roster, read_roster

LOG = logging.getLogger("fedfeast.fleet")
QUERY_SECONDS = 30.0  # that a round waits for newcomers to say who they are
QUERY_LIFE_SECONDS = 300.0  # after which a node is asked again
POLL_SECONDS = 0.2
SAY_SECONDS = 10.0  # between two sentences about a wait

Asked = TypeVar("Asked")  # what an answer is expected for


@dataclass
class Fleet:
    """Knows the nodes by what they answered; keeps the table of clients in the run's folder."""

    transport: Transport
    folder: RunFolder
    method: Method
    terms: Terms
    settings: FleetSection
    roster: Roster = field(init=False)
    round_index: int = field(init=False, default=0)  # the latest that was gathered for
    kept_back: dict[str, int] = field(init=False, default_factory=dict)  # client -> examples it evaluates on
    # Answers that came while nobody waited for them, by message; None: they are dropped.
    kept_answers: dict[str, Message] | None = field(init=False, default=None)
    _nodes: dict[int, str] = field(init=False, default_factory=dict)  # node -> name of the client it is
    _refused: dict[int, str] = field(init=False, default_factory=dict)  # node -> reason
    _asked: dict[int, float] = field(init=False, default_factory=dict)  # node -> when
    # Not yet in the table: who they are, and the key that their name was registered with.
    _newcomers: dict[int, tuple[Client, str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.roster = read_roster(self.folder.path / "clients.csv")

    def node_of(self, client: Client) -> int | None:
        """Return the node that a client trains on; the last one that gave its name."""
        return next((node for node, name in reversed(self._nodes.items()) if name == client.name), None)

    def nodes_by_name(self) -> dict[str, int]:
        """Return the nodes of all clients at once."""
        return {name: node for node, name in self._nodes.items()}

    def gather(self, round_index: int) -> set[int]:
        """Wait until enough clients are there; return the indices of those that may be sampled."""
        self.round_index = round_index
        needed = max(self.settings.least_clients, self.settings.least_answers)
        began, said = time.monotonic(), 0.0
        while True:
            self._look_round(round_index)
            there = self._there() | {client.name for client, _ in self._newcomers.values()}
            if len(there) >= needed and not self._asking():
                self._admit()
                free = {client.index for client in self.present_clients()}
                if len(self._there()) >= needed and (free or self.transport.waiting("train") or self.kept_answers):
                    return free
            waited = time.monotonic() - began
            if len(there) < needed and waited - said >= SAY_SECONDS:
                said = waited
                LOG.warning("round %d waits for clients: %d of %d are there", round_index + 1, len(there), needed)
            time.sleep(POLL_SECONDS)

    def present_clients(self) -> list[Client]:
        """Return the clients that are there now and not at work, by their indices."""
        present = self._present()
        return [client for client in self.roster.clients if client.name in present]

    def hear(self, pending: PendingMessage, reply: Message) -> None:
        """Take in an answer that no round waits for: an introduction, or a slice that comes too late."""
        if pending.kind == "query":
            self._meet(pending.node_id, reply)
        elif pending.kind == "train" and self.kept_answers is not None:
            self.kept_answers[pending.message_id] = reply
        else:
            name = self._nodes.get(pending.node_id, f"node {pending.node_id}")
            what = f"and is an {error_of(reply)}" if reply.has_error() else "and was dropped"
            LOG.warning("the answer of %s for round %d came too late %s", name, pending.round_index + 1, what)

    def receive_first(
        self, under_way: dict[str, Asked], take: Callable[[Asked, Message], None], is_enough: Callable[[], bool]
    ) -> list[Asked]:
        """Hand over answers until they are enough or none is to come; return whose answers are given up.

        What nobody waited for when it came is handed over first.
        """
        kept, given_up = self.kept_answers if self.kept_answers is not None else {}, list[Asked]()
        while under_way and not is_enough():
            for message_id in [one for one in under_way if one in kept]:
                if not is_enough():
                    take(under_way.pop(message_id), kept.pop(message_id))
            for pending, reply in self.transport.arrivals():
                self._hand_over(pending, reply, under_way, take)
                del reply  # before the next one is pulled
                if is_enough():
                    return given_up
            gone = [one for one in under_way if one not in kept and not self.transport.is_waiting(one)]
            given_up += [under_way.pop(message_id) for message_id in gone]
            if under_way and not is_enough():
                time.sleep(POLL_SECONDS)
        return given_up

    def receive(self, under_way: dict[str, Asked], take: Callable[[Asked, Message], None]) -> None:
        """Hand over each answer to what is under way, by message, until all are there or the deadline has passed."""
        deadline = time.monotonic() + self.settings.deadline_seconds
        while under_way and time.monotonic() < deadline:
            for pending, reply in self.transport.arrivals():
                self._hand_over(pending, reply, under_way, take)
                del reply  # before the next one is pulled
            if under_way:
                time.sleep(POLL_SECONDS)

    def _hand_over(
        self,
        pending: PendingMessage,
        reply: Message,
        under_way: dict[str, Asked],
        take: Callable[[Asked, Message], None],
    ) -> None:
        """Hand over what somebody waits for; hear the rest."""
        asked = under_way.pop(pending.message_id, None)
        if asked is None:
            self.hear(pending, reply)
        else:
            take(asked, reply)

    def _look_round(self, round_index: int) -> None:
        """Forget who has left, ask newcomers who they are, hear what has arrived."""
        online = self.transport.nodes()
        for node in [node for node in self._nodes if node not in online]:
            LOG.warning("%s has left", self._nodes.pop(node))
        for known in (self._refused, self._asked, self._newcomers):
            for node in [node for node in known if node not in online]:
                del known[node]
        for node in sorted(online - self._nodes.keys() - self._refused.keys() - self._newcomers.keys()):
            if time.monotonic() - self._asked.get(node, -QUERY_LIFE_SECONDS) >= QUERY_LIFE_SECONDS:
                self._asked[node] = time.monotonic()
                terms = RecordDict({"terms": to_json(self.terms.to_json())})
                self.transport.send(node, "query", round_index, terms, QUERY_LIFE_SECONDS)
        for pending, reply in self.transport.arrivals():
            self.hear(pending, reply)

    def _asking(self) -> bool:
        """Return whether somebody was asked a moment ago and has not answered."""
        return any(time.monotonic() - asked < QUERY_SECONDS for asked in self._asked.values())

    def _present(self, with_busy: bool = False) -> set[str]:
        """Return the names of the clients that are there, may train and are not at work, unless those too."""
        kinds = () if with_busy else ("train", "evaluate")
        busy = {one.node_id for kind in kinds for one in self.transport.waiting(kind)}
        trained = {client.name for client in self.roster.clients if self.method.trains(client.budget_macs)}
        return {name for node, name in self._nodes.items() if node not in busy and name in trained}

    def _there(self) -> set[str]:
        """Return the names of the clients that a round can count on; a buffered one has some at work all the time."""
        return self._present(with_busy=self.settings.mode == "buffered")

    def _meet(self, node: int, reply: Message) -> None:
        """Note what a newcomer says of itself, or refuse it with a reason."""
        if reply.has_error():
            LOG.warning("node %d did not say who it is: %s", node, error_of(reply))
            return  # it is asked again when the question has expired
        self._asked.pop(node, None)
        name, registration = f"node {node}", self.transport.registration(node)
        try:
            content = from_json(reply.content, "introduction")
            name = one_line(content.get("name") or name)
            said = introduced(content, self.terms, self.method)
            self._require_own_name(said.name, registration)
            if said.num_examples > self.settings.most_examples:
                raise Unreadable(
                    f"it declares {said.num_examples} examples, more than fleet.most_examples = "
                    f"{self.settings.most_examples}: its answers would weigh too much"
                )
        except Unreadable as error:
            self._refused[node] = str(error)
            LOG.warning("%s is refused: %s", name, error)
            return
        held = tuple(sorted(set(said.held_classes)))
        client = Client(-1, said.name, said.budget_macs, said.num_examples, held)
        self.kept_back[said.name] = said.kept_back
        self._newcomers[node] = client, registration.key if registration.name else ""

    def _require_own_name(self, name: str, registration: Registration) -> None:
        """Refuse a name that was registered with another node's key."""
        if registration.name and name != registration.name:
            raise Unreadable(f"it is registered as {one_line(registration.name)}: start it with that name")
        # Who has joined keeps a name for good; who has not yet said who it is has it from its registration.
        owner = self.roster.keys.get(name) or self.transport.key_of(name)
        if owner and owner != registration.key:
            raise Unreadable("the name belongs to a node with another key: give it a name of its own")

    def _admit(self) -> None:
        """Enter the newcomers in the table of clients."""
        # By name, so that those who arrive together are numbered alike in every run. Of two with one name the last has
        # it: whoever was registered with it.
        arrivals = sorted(self._newcomers.items(), key=lambda arrival: (arrival[1][0].name, arrival[1][1] != ""))
        self._newcomers.clear()
        for node, (client, _) in arrivals:
            for earlier in [known for known, name in self._nodes.items() if name == client.name]:
                # A restarted node may come back under another number before the old one is given up.
                LOG.warning("%s now answers from another node; the earlier one is passed over", client.name)
                del self._nodes[earlier]
                self._refused[earlier] = "another node has its name"
            self._nodes[node] = client.name
            LOG.info("%s has joined: %.4g MACs, %d examples", client.name, client.budget_macs, client.num_examples)
        if arrivals:
            self.roster = self.roster.joined(arrival for _, arrival in arrivals)
            self.folder.write_clients(self.roster.table(self.method.trains), again=True)


def introduced(content: Mapping[str, Any], terms: Terms, method: Method) -> Introduction:
    """Return who a node is; why it may not take part is raised."""
    version = content.get("version")
    if version != terms.version:
        raise Unreadable(
            one_line(f"it has fedfeast {version} and the server {terms.version}: install the same version")
        )
    if "problem" in content:
        raise Unreadable(one_line(content["problem"]))
    said = Introduction.read(content, "introduction")
    if said.space != terms.space:
        raise Unreadable(
            f"its network is another one ({one_line(said.space)} instead of {terms.space}): give it the server's recipe"
        )
    if any(number >= terms.facts.classes for number in said.held_classes):
        raise Unreadable(f"it holds classes beyond the {terms.facts.classes} of the network: mend its labels")
    if said.budget_macs < method.least_macs:
        raise Unreadable(
            f"its budget of {said.budget_macs:.0f} MACs is below the smallest network's "
            f"{method.least_macs}: give it a larger budget-macs, or the method a smaller network"
        )
    return said


def error_of(reply: Message) -> str:
    """Say what an error reply is about."""
    reason = (reply.error.reason or "").strip().splitlines()
    return f"error {reply.error.code}{': ' + one_line(reason[-1]) if reason else ''}"
