import subprocess
import sys

PROGRAM = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c",
     "import time; from fedfeast.flower import orphans; orphans.LOOK_SECONDS = 0.05; orphans.end_with_parent();"
     "print('watching', flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE,
)
child.stdout.readline()
"""


def test_a_process_ends_with_the_one_that_started_it() -> None:
    # The grandchild holds our pipe: it closes when the grandchild has ended, long before it is done sleeping.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert "the SuperLink is gone" in done.stderr
