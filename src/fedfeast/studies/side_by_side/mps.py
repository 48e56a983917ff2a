"""NVIDIA's multi-process service (MPS): kernels of several processes run on one GPU at the same time."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedfeast.errors import InvalidInput

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
GUARD = Path(__file__).with_name("mps_guard.py")
END_SECONDS = 60  # that MPS is given to end


@dataclass(frozen=True)
class Mps:
    """Whether processes meet in MPS, how that is said, and the variables that lead them there or away from it."""

    is_used: bool
    sentence: str
    variables: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def using_mps(wanted: bool | None) -> Iterator[Mps]:
    """Give MPS while the block runs, the user's own or one started for it; None is wherever it can be had."""
    program = shutil.which(CONTROL)
    if wanted is False:
        with tempfile.TemporaryDirectory(prefix="fedfeast-mps-") as empty:  # CUDA finds no daemon and does without
            yield Mps(False, "without MPS", {PIPES: empty})
    elif program is None:
        yield without_mps(wanted, f"{CONTROL} is not on the PATH")
    elif _is_running(program):
        yield Mps(True, "through the MPS that is running")
    else:
        with _starting(program) as (code, variables):
            if code == "0":
                yield Mps(True, "through MPS", variables)
            else:
                yield without_mps(wanted, f"{CONTROL} -d ended with exit code {code}")


def without_mps(wanted: bool | None, reason: str) -> Mps:
    """Return that MPS is not used; refuse it where it was asked for."""
    if wanted:
        raise InvalidInput(f"--mps cannot be had ({reason}): leave it out, and the runs share the device without it.")
    return Mps(False, f"without MPS ({reason})")


def _is_running(program: str) -> bool:
    """Return whether a daemon answers where CUDA programs of this environment look for one."""
    asked = subprocess.run(
        [program], input=b"get_server_list\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=END_SECONDS
    )
    return asked.returncode == 0 and b"Cannot find" not in asked.stdout


@contextmanager
def _starting(program: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a daemon that lives as long as the block, in folders of its own; give its exit code and where it is."""
    folder = Path(tempfile.mkdtemp(prefix="fedfeast-mps-"))
    places = {PIPES: folder / "pipes", LOGS: folder / "logs"}
    for place in places.values():
        place.mkdir()
    variables = {name: str(place) for name, place in places.items()}
    guard = subprocess.Popen(
        [sys.executable, "-I", str(GUARD), program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,  # where no Ctrl-C of a terminal reaches it
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        yield guard.stdout.readline().decode().strip() or "none", variables
    finally:
        guard.stdin.close()
        guard.stdout.close()
        with suppress(subprocess.TimeoutExpired):  # it goes on ending MPS without us
            guard.wait(END_SECONDS)
