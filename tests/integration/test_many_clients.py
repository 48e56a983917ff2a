"""Memory does not grow with the number of clients."""

import json
import subprocess
import sys

CODE = """
import json, pathlib, tempfile
import fedfeast
settings = {
    "data.name": "synthetic", "data.validation_examples": 500, "data.calibration_examples": 500,
    "population.num_clients": 10_000, "training.rounds": 3, "evaluation.every_rounds": 3,
}
with tempfile.TemporaryDirectory() as out:
    run = fedfeast.train("digits", out=out + "/run", settings=settings)
    # VmHWM, not ru_maxrss: that one is inherited from the process which started this one.
    status = pathlib.Path("/proc/self/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    print(json.dumps({"peak_gib": peak_kib / 2**20, "clients": run.summary["clients"]}))
"""


def test_ten_thousand_clients_stay_under_two_gib() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["clients"] == 10_000
    assert measured["peak_gib"] < 2
