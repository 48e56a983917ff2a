"""A fleet of three real nodes gives the weights of the eager simulation, in float64."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tiny import TINY, as_settings

from fedfeast.flower.local_fleet import LocalFleet
from fedfeast.runs import Run

from .conftest import APP, wait_for

SETTINGS = [
    *as_settings(TINY),
    "population.num_clients=3",
    "training.clients_per_round=3",
    "evaluation.every_rounds=2",
    "engine.precision=float64",
    "fleet.least_clients=3",
]


WIRE = ["wire.down=int8", "wire.down_deltas=true", "wire.up=int8", "wire.up_topk=0.2"]


@pytest.mark.usefixtures("single_thread")
def test_a_fleet_of_three_equals_the_simulation_over_any_wire(tmp_path: Path) -> None:
    # The second round is the first that can send differences.
    wires = {"lossless": [*SETTINGS, "training.rounds=1"], "small": [*SETTINGS, "training.rounds=2", *WIRE]}
    simulated = {name: Run.create("digits", tmp_path / f"simulated-{name}", one).train() for name, one in wires.items()}
    with ThreadPoolExecutor() as together, LocalFleet(tmp_path / "fleet") as fleet:
        fleet.start_superlink()
        configs = [{"partition-id": index, "num-partitions": 3} for index in range(3)]
        list(together.map(fleet.start_node, ("node-0", "node-1", "node-2"), configs))
        for name, settings in wires.items():
            out = tmp_path / name
            fleet.submit(APP, {"recipe": "digits", "out": str(out), "settings": "; ".join(settings)})
            wait_for((out / "summary.json").is_file, 200, "training", lambda: fleet.log("superlink"))
    for name in wires:
        require_equal(Run.open(tmp_path / name), simulated[name])
    sent = {name: Run.open(tmp_path / name).summary["traffic"] for name in wires}
    assert sent["small"]["bytes_down"] < 2 * sent["lossless"]["bytes_down"]
    assert sent["small"]["bytes_up"] < 0.1 * 2 * sent["lossless"]["bytes_up"]


def require_equal(run: Run, simulated: Run) -> None:
    """Require that a fleet's run has the weights, losses and clients of a simulated one."""
    weights = [one.folder.checkpoints.load_latest()[0] for one in (simulated, run)]
    assert weights[0] is not None
    assert weights[1] is not None
    assert weights[1].flat.dtype == torch.float64
    torch.testing.assert_close(weights[1].flat, weights[0].flat, rtol=0, atol=1e-6)
    assert run.population_score == pytest.approx(simulated.population_score)
    for row, other in zip(run.folder.metrics(), simulated.folder.metrics(), strict=True):
        assert row["clients"] == row["answered"] == other["clients"]
        assert row["payload_parameters"] == other["payload_parameters"]
        assert row["losses"] == pytest.approx(other["losses"])
    assert run.folder.clients()[0]["name"] == "client-000"
