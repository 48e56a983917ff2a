"""Keeps NVIDIA's MPS running for as long as its standard input is open; started as a file, without the package.

A process of its own, so that MPS also ends when those who use it are killed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Start the daemon whose folders are in the environment, say its exit code, wait, end it and clear its folder."""
    program, folder = sys.argv[1], Path(sys.argv[2])
    # Into files: a daemon that kept a pipe open would keep whoever reads it waiting.
    with (folder / "said").open("wb") as said:
        code = subprocess.call([program, "-d"], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    print(code, flush=True)
    try:
        while os.read(0, 1):
            pass
        if code == 0:
            subprocess.run([program], input=b"quit\n", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
