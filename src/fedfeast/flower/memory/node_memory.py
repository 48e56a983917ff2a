"""What a node remembers of the wire between rounds, in a folder of its own; what is lost is only sent again."""

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.wire.link import unfold
from fedfeast.federation.wire.memory import ClientMemory
from fedfeast.flower.messages import Order, Unreadable
from fedfeast.own_code import home_folder
from fedfeast.routing import SliceMap
from fedfeast.runs.checkpoint import write_tensors

FILE = "wire.safetensors"


class NeedsWhole(Unreadable):
    """The weights came as a difference to what this node no longer holds."""


@dataclass(frozen=True, eq=False)
class NodeMemory:
    """A node's own file: residual and held weights of the run that it last took part in."""

    path: Path
    run: str  # by the terms
    content: ClientMemory = field(default_factory=ClientMemory)

    @classmethod
    def open(cls, folder: str | None, name: str, terms: str, round_index: int) -> "NodeMemory":
        """Read what a node remembers of the rounds before this one; nothing where the file is lost or another run's."""
        # Choice: by hashes, so that no name that somebody chose becomes a path; one file a node, so that none pile up.
        place = Path(folder).expanduser() if folder else _default_folder()
        path = place / hashlib.sha256(name.encode()).hexdigest()[:16] / FILE
        empty = cls(path, hashlib.sha256(terms.encode()).hexdigest())
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads(file.metadata()["fedfeast"])
                if about["run"] != empty.run:
                    return empty
                found = ClientMemory.read({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
                # Of a round that is tried again, the residual was made by that round itself.
                residual = found.residual if about["round"] < round_index else None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return empty
        return cls(path, empty.run, ClientMemory(residual, found.held))

    def received(self, order: Order, slices: SliceMap, arrived: Tensor) -> Tensor:
        """Return the packed weights of an order, given what arrived: themselves, or their difference to those held."""
        held = self.content.held if self.content.held is not None and self.content.held.is_of(slices) else None
        holds = "" if held is None else sha256_of_values(held.values)
        if held is not None and holds == order.weights_sha256:
            return held.values  # the round is tried again, and this is what it sent before
        if order.base_sha256:
            if held is None or holds != order.base_sha256:
                raise NeedsWhole("it no longer holds the weights that it was sent a difference to")
            arrived = unfold(arrived, held.values)
        if sha256_of_values(arrived) != order.weights_sha256:
            raise Unreadable("the received weights are not those that the server says it sent")
        return arrived

    def save(self, content: ClientMemory, round_index: int) -> None:
        """Write what the next round needs; a disk that is full costs no more than these savings."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(self.path, content.tensors(), json.dumps({"run": self.run, "round": round_index}))
        except OSError as error:
            logging.getLogger("fedfeast.fleet").warning("what was sent is not remembered: %s", error)


def sha256_of_values(values: Tensor) -> str:
    """Return by which hash both sides know weights."""
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def _default_folder() -> Path:
    try:
        return home_folder() / "nodes"
    except InvalidInput as error:
        raise InvalidInput(f'{str(error).rstrip(".")}, or add state-folder="FOLDER" to --node-config.') from error
