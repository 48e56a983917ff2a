"""The nodes of a running fleet: who they are, who may train, and who is there now."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from flwr.app import Message, RecordDict

from fedfeast.federation import Client, Method
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import PendingMessage, Transport
from fedfeast.flower.wire import Unreadable, from_json, to_json
from fedfeast.recipes.sections import FleetSection
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.roster import Roster, read_roster

LOG = logging.getLogger("fedfeast.fleet")
QUERY_SECONDS = 30.0  # that a round waits for newcomers to say who they are
QUERY_LIFE_SECONDS = 300.0  # after which a node is asked again
POLL_SECONDS = 0.2
LONGEST_NAME = 100
MOST_CHARACTERS = 500  # of a client's own words in the log
SAY_SECONDS = 10.0  # between two sentences about a wait


@dataclass
class Fleet:
    """Knows the nodes by what they answered; keeps the table of clients in the run's folder."""

    transport: Transport
    folder: RunFolder
    method: Method
    terms: Terms
    settings: FleetSection
    roster: Roster = field(init=False)
    _nodes: dict[int, str] = field(init=False, default_factory=dict)  # node -> name of the client it is
    _refused: dict[int, str] = field(init=False, default_factory=dict)  # node -> reason
    _asked: dict[int, float] = field(init=False, default_factory=dict)  # node -> when
    _newcomers: dict[int, Client] = field(init=False, default_factory=dict)  # not yet in the table

    def __post_init__(self) -> None:
        self.roster = read_roster(self.folder.path / "clients.csv")

    def node_of(self, client: Client) -> int | None:
        """Return the node that a client trains on; the last one that gave its name."""
        return next((node for node, name in reversed(self._nodes.items()) if name == client.name), None)

    def gather(self, round_index: int) -> set[int]:
        """Wait until enough clients are there; return the indices of those that may be sampled."""
        needed = max(self.settings.least_clients, self.settings.least_answers)
        began, said = time.monotonic(), 0.0
        while True:
            self._look_round(round_index)
            there = self._present() | {client.name for client in self._newcomers.values()}
            if len(there) >= needed and not self._asking():
                self._admit()
                present = self._present()
                indices = {client.index for client in self.roster.clients if client.name in present}
                if len(indices) >= needed:
                    return indices
            waited = time.monotonic() - began
            if len(there) < needed and waited - said >= SAY_SECONDS:
                said = waited
                LOG.warning("round %d waits for clients: %d of %d are there", round_index + 1, len(there), needed)
            time.sleep(POLL_SECONDS)

    def hear(self, pending: PendingMessage, reply: Message) -> None:
        """Take in an answer that no round waits for: an introduction, or a slice that comes too late."""
        if pending.kind == "query":
            self._meet(pending.node_id, reply)
        else:
            name = self._nodes.get(pending.node_id, f"node {pending.node_id}")
            what = f"and is an {error_of(reply)}" if reply.has_error() else "and was dropped"
            LOG.warning("the answer of %s for round %d came too late %s", name, pending.round_index + 1, what)

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

    def _present(self) -> set[str]:
        """Return the names of the clients that are there, may train and are not at work."""
        busy = {pending.node_id for pending in self.transport.waiting("train")}
        trained = {client.name for client in self.roster.clients if self.method.trains(client.budget_macs)}
        return {name for node, name in self._nodes.items() if node not in busy and name in trained}

    def _meet(self, node: int, reply: Message) -> None:
        """Note what a newcomer says of itself, or refuse it with a reason."""
        if reply.has_error():
            LOG.warning("node %d did not say who it is: %s", node, error_of(reply))
            return  # it is asked again when the question has expired
        self._asked.pop(node, None)
        try:
            content = from_json(reply.content, "introduction")
            reason = refusal_of(content, self.terms, self.method)
        except (Unreadable, KeyError, TypeError, ValueError, OverflowError) as error:
            content, reason = {}, one_line(f"its introduction is unreadable ({error})")
        name = one_line(content.get("name") or f"node {node}")
        if reason is not None:
            self._refused[node] = reason
            LOG.warning("%s is refused: %s", name, reason)
        else:
            budget, classes = float(content["budget_macs"]), tuple(map(int, content["held_classes"]))
            self._newcomers[node] = Client(-1, name, budget, int(content["num_examples"]), classes)

    def _admit(self) -> None:
        """Enter the newcomers in the table of clients."""
        # By name, so that those who arrive together are numbered alike in every run.
        arrivals = sorted(self._newcomers.items(), key=lambda arrival: arrival[1].name)
        self._newcomers.clear()
        for node, client in arrivals:
            for earlier in [known for known, name in self._nodes.items() if name == client.name]:
                # A restarted node may come back under another number before the old one is given up.
                LOG.warning("%s now answers from another node; the earlier one is passed over", client.name)
                del self._nodes[earlier]
                self._refused[earlier] = "another node has its name"
            self._nodes[node] = client.name
            LOG.info("%s has joined: %.4g MACs, %d examples", client.name, client.budget_macs, client.num_examples)
        if arrivals:
            self.roster = self.roster.joined(client for _, client in arrivals)
            self.folder.write_clients(self.roster.table(self.method.trains), again=True)


def refusal_of(content: Mapping[str, Any], terms: Terms, method: Method) -> str | None:
    """Return why a node may not take part, or None."""
    if content.get("version") != terms.version:
        return f"it has fedfeast {content.get('version')} and the server {terms.version}: install the same version"
    if "problem" in content:
        return one_line(content["problem"])
    if content["space"] != terms.space:
        return f"its network is another one ({content['space']} instead of {terms.space}): give it the server's recipe"
    name, budget = str(content["name"]), float(content["budget_macs"])
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        return f"its name is no line of 1 to {LONGEST_NAME} letters: give it another"
    if int(content["num_examples"]) < 1:
        return "it has no examples"
    if any(not 0 <= int(number) < terms.facts.classes for number in content["held_classes"]):
        return f"it holds classes beyond the {terms.facts.classes} of the network: mend its labels"
    if not isfinite(budget):
        return f"its budget is {budget}: give it a finite budget-macs"
    if budget < method.least_macs:
        return (
            f"its budget of {budget:.0f} MACs is below the smallest network's "
            f"{method.least_macs}: give it a larger budget-macs, or the method a smaller network"
        )
    return None


def one_line(words: Any) -> str:
    """Return what a client says as one line of a log, cut where it is long."""
    return " ".join(str(words).split())[:MOST_CHARACTERS]


def error_of(reply: Message) -> str:
    """Say what an error reply is about."""
    reason = (reply.error.reason or "").strip().splitlines()
    return f"error {reply.error.code}{': ' + reason[-1] if reason else ''}"
