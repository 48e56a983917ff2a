"""Train the first rounds of a recipe, then measure the last weights at the paper's five anchors."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import fedfeast
from fedfeast.runs import Interrupted
from fedfeast.runs.training import Silent

ANCHORS_MACS = (25e6, 50e6, 229e6, 408e6, 596e6)


class StopAfter(Silent):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] < 4 or row["round"] % 10 == 0:
            print(
                row["round"], f"{row['seconds']:.2f} s", {role: round(loss, 3) for role, loss in row["losses"].items()}
            )
        if row["round"] >= self.rounds:
            raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=88)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    arguments = parser.parse_args()
    run = fedfeast.Run.create(arguments.recipe, arguments.out, arguments.settings)
    try:
        run.train(StopAfter(arguments.rounds))
    except Interrupted as stop:
        print(stop)
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    federation = run.federation
    points = federation.method.operating_points()
    nearest = [min(points, key=lambda point: abs(point.macs - macs)) for macs in ANCHORS_MACS]
    curve = federation.test.curve(federation.method, state.flat.to(federation.device), nearest)
    result = {
        "rounds": state.finished_rounds,
        "device": run.folder.environment()["device"],
        "torch": torch.__version__,
        "convolutions in TF32": torch.backends.cudnn.allow_tf32,
        "test_accuracy": {point.name: round(100 * point.accuracy, 2) for point in curve.points},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
