"""Memory does not grow with the number of clients."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scripts" / "many_clients.py"


def test_ten_thousand_clients_stay_under_two_gib() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert (measured["clients"], measured["rounds"]) == (10_000, 3)
    assert measured["peak_gib"] < 2
