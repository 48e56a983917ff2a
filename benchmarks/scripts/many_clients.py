"""Peak memory of three rounds with 10,000 clients on a synthetic set of 60,000 8x8 images."""

import json
import tempfile
import time
from pathlib import Path

import fedfeast

SETTINGS = {
    "data.name": "synthetic",
    "data.validation_examples": 500,
    "data.calibration_examples": 500,
    "population.num_clients": 10_000,
    "training.rounds": 3,
    "evaluation.every_rounds": 3,
}


def peak_gib() -> float:
    """Return this process's peak resident memory; ru_maxrss would be inherited from the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def main() -> None:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = fedfeast.train("digits", out=Path(folder) / "run", settings=SETTINGS)
        result = {
            "clients": run.summary["clients"],
            "rounds": run.summary["finished_rounds"],
            "peak_gib": round(peak_gib(), 3),
            "seconds": round(time.perf_counter() - started, 1),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
