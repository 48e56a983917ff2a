"""From a folder of photos to models for devices by one command: seconds to prepare, to train and to export."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from photo_set import CLASSES, write_photos

from fedfeast.machine import processor_name, usable_cores


def fedfeast(*words: str | Path, folder: Path) -> float:
    """Run a command line in a folder and return its seconds."""
    started = time.perf_counter()
    environment = {**os.environ, "FEDFEAST_DATA": str(folder / "data")}
    command = [sys.executable, "-m", "fedfeast", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, env=environment)
    return round(time.perf_counter() - started, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--each", type=int, default=100, help="photos of each class")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_photos(folder / "photos", options.each, broken=9)
        training = fedfeast("train", "photos", "--minutes", f"{options.minutes:g}", folder=folder)
        exporting = fedfeast("export", "runs/photos", "--ladder", "4", "--out", "models", folder=folder)
        summary = json.loads((folder / "runs" / "photos" / "summary.json").read_text())
        budget = json.loads((folder / "runs" / "photos" / "time_budget.json").read_text())
    result = {
        "processor": processor_name(),
        "cores": usable_cores(),
        "photos": options.each * len(CLASSES),
        "minutes": options.minutes,
        "train_seconds": training,
        "export_seconds": exporting,
        "chosen": budget,
        "training_seconds_of_rounds": summary["training_seconds"],
        "population_score": summary["population_score"],
        "curve": {f"{point['macs']}": point["accuracy"] for point in summary["curve"]},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
