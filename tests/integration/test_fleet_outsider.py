"""An outsider who has the authority's public certificate gets nowhere; a node that the operator registered trains."""

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

SETTINGS = [*as_settings(TINY), "population.num_clients=3", "training.rounds=1", "evaluation.every_rounds=1"]
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
        self.app, self.trace = folder / "app", folder / "code-was-run"
        shutil.copytree(APP, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        code = self.app / "server_app.py"
        code.write_text(f"{code.read_text()}\nopen({str(self.trace)!r}, 'w').close()\n")

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


@pytest.mark.usefixtures("single_thread")
def test_an_outsider_gets_nowhere_and_a_registered_node_trains(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as together, LocalFleet(tmp_path / "fleet") as fleet:
        fleet.start_superlink()
        outsider = Outsider(tmp_path / "outsider", fleet)
        node = together.submit(fleet.start_node, "kitchen", {"partition-id": 0, "num-partitions": 3})
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

        node.result()
        out = tmp_path / "run"
        fleet.submit(APP, {"recipe": "digits", "out": str(out), "settings": "; ".join(SETTINGS)})
        wait_for((out / "summary.json").is_file, 120, "training", lambda: fleet.log("superlink"))
        assert "stranger" not in fleet.flwr("supernode", "list", CONNECTION)
    assert [row["answered"] for row in Run.open(out).folder.metrics()] == [[0]]
    assert not outsider.trace.exists()
