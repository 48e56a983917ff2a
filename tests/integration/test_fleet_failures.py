"""One fleet of real processes through everything that goes wrong: absent, killed, late, new, refused, restarted."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny import TINY, as_settings

from fedfeast.flower.local_fleet import LocalFleet
from fedfeast.presentation.report import write_report
from fedfeast.runs import Run

from .conftest import APP, wait_for

SETTINGS = "; ".join(
    [*as_settings({**TINY, "training.rounds": 40, "evaluation.every_rounds": 4}), "fleet.deadline_seconds={seconds}"]
)
PATIENT, STRICT = 120, 20  # seconds; strict only where somebody is to be late

DATA = """
import time
from pathlib import Path
import numpy as np

def shots():
    hang, hanging = Path({hang!r}), Path({hanging!r})
    if hang.exists():
        hanging.touch()
        while hang.exists():
            time.sleep(0.1)
    images = np.random.default_rng({first}).integers(0, 256, (100, 8, 8), dtype="uint8")
    return images, np.arange(100) % 10
"""


class Stage:
    """The fleet at work, and what the test wants of it."""

    def __init__(self, folder: Path, fleet: LocalFleet) -> None:
        self.folder, self.fleet, self.out = folder, fleet, folder / "run"

    def start_node(self, name: str, budget: float = 5e6, register: bool = True) -> None:
        place = self.folder / f"{name}.py"
        first = 100 * (ord(name[0]) - ord("a"))
        place.write_text(DATA.format(hang=f"{place}.hang", hanging=f"{place}.hanging", first=first))
        config: dict[str, str | float] = {"name": name, "data": f"{place}:shots", "budget-macs": budget}
        self.fleet.start_node(name, config, register)

    def hang(self, *names: str) -> None:
        """Let nodes hang in their next round, and wait until they do."""
        for name in names:
            (self.folder / f"{name}.py.hang").touch()
        self.wait(lambda: all((self.folder / f"{name}.py.hanging").is_file() for name in names), "hanging")

    def release(self, name: str) -> None:
        (self.folder / f"{name}.py.hang").unlink()

    def submit(self, deadline_seconds: int) -> None:
        settings = SETTINGS.format(seconds=deadline_seconds)
        self.fleet.submit(APP, {"recipe": "digits", "out": str(self.out), "settings": settings})

    def go_on(self, finished: int, deadline_seconds: int) -> None:
        """Start the run again and see it begin after the finished rounds."""
        self.submit(deadline_seconds)
        self.wait_for_log(f"training begins at round {finished + 1} of 40")

    def wait(self, condition: object, what: str, seconds: float = 150) -> None:
        assert callable(condition)
        wait_for(condition, seconds, what, self.log)

    def wait_for_log(self, text: str) -> None:
        self.wait(lambda: text in self.log(), f"'{text}' in the log")

    def log(self) -> str:
        file = self.out / "fleet.log"
        return file.read_text() if file.is_file() else self.fleet.log("superlink")

    def rounds(self) -> int:
        """Return how many rounds are finished and saved."""
        saved = sorted((self.out / "checkpoints").glob("round-*.safetensors.sha256"))
        return int(saved[-1].name[6:12]) if saved else 0

    def wait_for_round(self, number: int) -> None:
        self.wait(lambda: self.rounds() >= number, f"round {number}")

    def server_app(self) -> int:
        """Return the process of the server app."""
        (pid,) = (pid for pid, words in self.fleet.started_by("superlink").items() if "flwr-serverapp" in words)
        return pid


@pytest.mark.usefixtures("single_thread")
def test_a_fleet_goes_on_through_failures(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as together, LocalFleet(tmp_path / "fleet") as fleet:
        stage = Stage(tmp_path, fleet)
        fleet.start_superlink()
        together.submit(stage.start_node, "unknown", register=False)
        together.submit(stage.start_node, "poor", 10.0)
        stage.submit(PATIENT)

        # Nobody is there who can take part: the server waits and says so. When others come, they go on.
        stage.wait_for_log("waits for clients: 0 of 1 are there")
        list(together.map(stage.start_node, ("a", "b", "c")))
        stage.wait_for_round(1)
        first = Run.open(stage.out)
        write_report([first], tmp_path / "report.html")
        stage.wait_for_log("poor is refused: its budget of 10 MACs is below the smallest network's")
        stage.wait_for_log("c has joined")
        assert "unknown" not in {row["name"] for row in first.folder.clients()}
        list(together.map(fleet.stop, ("poor", "unknown")))  # asked again at every start, they would only cost time

        # The server app is killed: the next start goes on after the last finished round, here with another deadline.
        os.kill(stage.server_app(), signal.SIGKILL)
        stage.go_on(stage.rounds(), STRICT)
        for name in ("a", "b", "c"):
            stage.wait(lambda name=name: stage.log().count(f"{name} has joined") >= 2, f"{name}'s return")

        # One node is killed in the middle of a round, another one answers late, a third joins meanwhile.
        stage.hang("b", "c")
        fleet.kill("b")
        stage.start_node("d")
        stage.wait_for_log(f"goes on without c: no answer within {STRICT} s")
        stage.release("c")
        stage.wait_for_log("goes on without b")
        stage.wait_for_log("came too late and was dropped")
        stage.wait_for_log("d has joined")

        # The SuperLink alone is killed: its server app gives the folder up, and the nodes come back by themselves.
        left = stage.server_app()
        fleet.kill("superlink", alone=True)
        stage.wait(lambda: not Path(f"/proc/{left}").exists(), "the server app's end")
        fleet.start_superlink()
        finished = stage.rounds()
        stage.go_on(finished, PATIENT)
        stage.wait_for_round(finished + 1)

        # No node is left: the server waits, says so, and goes on when some come back, under their old names.
        list(together.map(fleet.stop, ("a", "c", "d")))
        before = stage.log().count("waits for clients: 0 of 1 are there")
        stage.wait(lambda: stage.log().count("waits for clients: 0 of 1 are there") > before, "the server's sentence")
        alone = stage.rounds()
        stage.start_node("a")
        stage.wait_for_round(alone + 1)
    run = Run.open(stage.out)
    rounds = [row["round"] for row in run.folder.metrics()]
    assert rounds == list(range(1, len(rounds) + 1))
    *first_three, last = [row["name"] for row in run.folder.clients()]
    assert (sorted(first_three), last) == (["a", "b", "c"], "d")
