"""Both engines on a CUDA device: equal to the CPU in float64, and whole runs from start to bundle."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedfeast
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Interrupted
from fedfeast.runs.assembly import assemble
from fedfeast.runs.training import Silent

from .conftest import AUGMENTED, SHORT_ON_CUDA

pytestmark = pytest.mark.gpu
on_both_engines = pytest.mark.parametrize("engine", ["eager", "graphs"])

SHORT = SHORT_ON_CUDA


def one_round(device: str, engine: str) -> torch.Tensor:
    settings = {**AUGMENTED, "engine.device": device, "engine.name": engine, "engine.precision": "float64"}
    built = assemble(load_recipe("digits", settings))
    assert built.device.type == device
    cohort = [built.clients[index] for index in built.participants[:4]]
    assignments, _ = built.method.plan_round({}, built.initial_weights(), cohort, 0, named_generator(0))
    return built.engine().run_round(RoundOrder(built.initial_weights(), assignments, 0, 0.1)).flat.cpu()


@on_both_engines
def test_a_round_equals_the_cpus_in_float64(engine: str) -> None:
    torch.testing.assert_close(one_round("cuda", engine), one_round("cpu", "eager"), rtol=1e-6, atol=1e-9)


class StopAfterTwo(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt


@on_both_engines
def test_a_run_is_stopped_resumed_evaluated_and_extracted(engine: str, tmp_path: Path) -> None:
    settings = {**SHORT, "engine.name": engine}
    with pytest.raises(Interrupted, match="after round 2"):
        fedfeast.train("digits", tmp_path / "run", settings, StopAfterTwo())
    run = fedfeast.train("digits", tmp_path / "run", settings)
    assert [row["round"] for row in run.folder.metrics()] == [1, 2, 3, 4]
    assert "cpu" not in run.folder.environment()["device"]
    manifest = fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=6e5))
    with torch.no_grad():
        right = fedfeast.load_bundle(tmp_path / "bundle")(run.federation.test.test.inputs.cpu()).argmax(1)
    labels = run.federation.test.test.labels.cpu()
    assert float((right == labels).double().mean()) == pytest.approx(manifest["test_accuracy"], abs=0.01)
    assert fedfeast.plan("digits", {"engine.device": "cuda"})["supernet"]["parameters"] == 546_906


def test_two_processes_share_the_gpus_and_equal_one(tmp_path: Path) -> None:
    settings = {"training.rounds": 2, "engine.device": "cuda", "engine.precision": "float64"}
    alone = fedfeast.train("digits", tmp_path / "alone", settings)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fedfeast"]
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [*command, "train", "digits", "--out", str(tmp_path / "two"), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    one, two = (run.folder.checkpoints.load_latest()[0] for run in (alone, fedfeast.Run.open(tmp_path / "two")))
    assert one is not None
    assert two is not None
    torch.testing.assert_close(two.flat, one.flat, rtol=0, atol=1e-6)
