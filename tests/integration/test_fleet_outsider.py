"""An outsider, a lying client and a greedy server, all of them real processes, get nowhere; an honest node trains."""

import http.client
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny import TINY, as_settings

from fedfeast.flower.credentials import make_node_key
from fedfeast.flower.local_fleet import CONNECTION, LocalFleet, write_connection
from fedfeast.runs import Run

from .conftest import APP, wait_for

SETTINGS = [
    *(*as_settings(TINY), "population.num_clients=3", "training.clients_per_round=3", "training.rounds=1"),
    *("evaluation.every_rounds=1", "fleet.least_clients=3", "privacy.clip_norm=50", "privacy.noise_multiplier=1"),
]
# It promises noise to whoever introduces itself, and then asks for training without any.
GREEDY = """
from fedfeast.flower import engine
from fedfeast.flower.messages import to_json
from fedfeast.flower.server import build_server_app


class Greedy(engine.FleetEngine):
    def __init__(self, *parts):
        super().__init__(*parts)
        told = self._fleet.terms.to_json()
        self._terms = to_json({**told, "recipe": told["recipe"].replace("clip_norm = 50.0\\n", "")})


engine.FleetEngine = Greedy
app = build_server_app()
"""
# A node's own data are its own code, in the process that answers: here it changes the answer.
LIAR = """
import numpy as np
from fedfeast.flower import client, messages


def lie(content):
    return messages.to_json({**content, "losses": {"student": [10**400, 1]}} if "losses" in content else content)


def shots():
    client.to_json = lie
    return np.zeros((100, 8, 8), dtype="uint8"), np.arange(100) % 10
"""
TARGETS = [
    "/v1/control/list-runs",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/v1/fleet/register-node",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "//v1/control/list-runs",
    "https://127.0.0.1/v1/control/list-runs",
    "/health",
    "/docs",
]


class Outsider:
    """Somebody with ca.crt, flwr and an app of his own."""

    def __init__(self, folder: Path, fleet: LocalFleet) -> None:
        folder.mkdir()
        self.folder, self.authority = folder, shutil.copy(fleet.credentials.authority, folder)
        self.host, port = fleet.address.split(":")
        self.port = int(port)
        write_connection(folder / "flwr", fleet.address, Path(self.authority))
        self.environment = {**fleet.environment, "FLWR_HOME": str(folder / "flwr")}
        self.key = make_node_key(folder, "stranger")
        self.trace = folder / "code-was-run"
        code = (APP / "server_app.py").read_text()
        self.app = write_app(folder / "app", f"{code}\nopen({str(self.trace)!r}, 'w').close()\n")

    def flwr(self, *words: str) -> tuple[int, str]:
        """Run a command of flwr against the open port; return its exit code and what it says."""
        program = [str(Path(shutil.which("flwr", path=self.environment["PATH"]) or "flwr")), *words]
        done = subprocess.run(program, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    def post(self, target: str) -> int:
        """Send an empty protobuf message; return the status."""
        context = ssl.create_default_context(cafile=self.authority)
        client = http.client.HTTPSConnection(self.host, self.port, context=context, timeout=10)
        client.request("POST", target, b"", {"content-type": "application/protobuf"})
        status = client.getresponse().status
        client.close()
        return status


def write_app(folder: Path, server: str) -> Path:
    """Write the fleet's app with another server."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "server_app.py").write_text(server)
    return folder


@pytest.mark.usefixtures("single_thread")
def test_outsider_liar_and_greedy_server_get_nowhere_and_an_honest_node_trains(tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(LIAR)
    simulated = {"partition-id": 0, "num-partitions": 3}
    nodes: dict[str, dict[str, str | int | float]] = {
        "careful": {**simulated, "name": "careful", "least-noise-multiplier": 1.0},
        "honest": {**simulated, "name": "honest"},
        "liar": {"name": "liar", "budget-macs": 5e6, "data": f"{tmp_path / 'liar.py'}:shots"},
    }
    with ThreadPoolExecutor() as together, LocalFleet(tmp_path / "fleet") as fleet:
        fleet.start_superlink()
        outsider = Outsider(tmp_path / "outsider", fleet)
        started = [together.submit(fleet.start_node, name, config) for name, config in nodes.items()]
        attempts = {
            "register": ["supernode", "register", f"{outsider.key}.pub", CONNECTION],
            "list": ["ls", CONNECTION],
            "run": ["run", str(outsider.app), CONNECTION],
        }
        answers = dict(zip(attempts, together.map(lambda words: outsider.flwr(*words), attempts.values()), strict=True))
        for name, (code, said) in answers.items():
            assert code != 0, (name, said)
            assert "404" in said, (name, said)
        assert {target: outsider.post(target) for target in TARGETS} == dict.fromkeys(TARGETS, 404)
        assert outsider.post("/v1/fleet/pull-messages") == 401  # the SuperLink itself asks who that is
        with socket.socket() as probe:  # the SuperLink listens on one address; others of this machine are not open
            assert probe.connect_ex(("127.0.0.2", fleet.superlink_port)) != 0

        for one in started:
            one.result()
        out = tmp_path / "run"
        fleet.submit(
            write_app(tmp_path / "greedy", GREEDY),
            {"recipe": "digits", "out": str(out), "settings": "; ".join(SETTINGS)},
        )
        wait_for((out / "summary.json").is_file, 200, "training", lambda: fleet.log("superlink"))
        assert "stranger" not in fleet.flwr("supernode", "list", CONNECTION)
    assert not outsider.trace.exists()
    run = Run.open(out)
    (row,), named = run.folder.metrics(), [client["name"] for client in run.folder.clients()]
    assert named == ["careful", "honest", "liar"], "all consented to what the server told them at first"
    assert row["answered"] == [1]
    assert "asks for updates without privacy, and it insists on a privacy.noise_multiplier" in row["failed"]["careful"]
    assert [(one["client"], "losses.student" in one["reason"]) for one in row["refused"]] == [("liar", True)]
