"""The fleet's app in Flower's simulation mode, on Ray."""

import os
import subprocess
import sys
from pathlib import Path

from fedfeast.runs import Run

PROGRAM = """
import sys
from pathlib import Path
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from fedfeast.flower.client import build_client_app
from fedfeast.flower.server import serve_run

SETTINGS = [
    "population.num_clients=2", "training.rounds=1", "training.batch_size=64", "fleet.least_clients=2",
    "evaluation.by=clients",
]
server = ServerApp()

@server.main()
def main(grid, context):
    serve_run(grid, "digits", SETTINGS, Path(sys.argv[1]))

run_simulation(server, build_client_app(), 2, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
"""


def test_the_same_app_runs_on_ray(tmp_path: Path) -> None:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **quiet, "FLWR_HOME": str(tmp_path / "flwr")}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = Run.open(tmp_path / "run")
    assert run.folder.metrics()[0]["answered"] == [0, 1]
    assert run.summary["finished_rounds"] == 1
    assert run.folder.metrics()[0]["evaluation"]["answered"] == [0, 1]  # the clients judged it, not the server
    assert 0 < run.summary["validation_score"] < 1
