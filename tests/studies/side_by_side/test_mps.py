"""MPS is started, used and ended by its control program; here a stand-in for NVIDIA's that notes what it is asked."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.studies.side_by_side.mps import using_mps
from fedfeast.studies.side_by_side.sharing import _reach_cuda

# Runs while its pipes' folder has a file, as the daemon has its socket there.
PROGRAM = """#!/bin/sh
place="${CUDA_MPS_PIPE_DIRECTORY:-$DEFAULT_PIPES}"
if [ "$1" = "-d" ]; then echo start >> "$NOTES"; test -z "$BROKEN" && touch "$place/control"; exit $?; fi
read -r asked
if [ ! -e "$place/control" ]; then echo "Cannot find MPS control daemon process"; exit 1; fi
test "$asked" = quit && echo quit >> "$NOTES" && rm "$place/control"
exit 0
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the control program on the path, and return the file of what it is asked."""
    program, pipes = tmp_path / "bin" / "nvidia-cuda-mps-control", tmp_path / "default"
    program.parent.mkdir()
    pipes.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DEFAULT_PIPES", str(pipes))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return tmp_path / "notes"


def test_it_is_started_in_folders_of_its_own_and_ended(notes: Path) -> None:
    with suppress(ZeroDivisionError), using_mps(None) as mps:
        assert (mps.is_used, mps.sentence) == (True, "through MPS")
        pipes, logs = (Path(mps.variables[f"CUDA_MPS_{what}_DIRECTORY"]) for what in ("PIPE", "LOG"))
        assert (pipes / "control").exists()
        assert logs.is_dir()
        raise ZeroDivisionError
    assert notes.read_text() == "start\nquit\n"
    assert not pipes.parent.exists()


def test_the_users_own_is_used_and_left_running(notes: Path) -> None:
    control = notes.with_name("default") / "control"
    control.touch()
    with using_mps(True) as mps:
        assert (mps.is_used, mps.sentence, dict(mps.variables)) == (True, "through the MPS that is running", {})
    assert control.exists()
    with using_mps(False) as mps:
        assert (mps.is_used, mps.sentence) == (False, "without MPS")
        assert not any(Path(mps.variables["CUDA_MPS_PIPE_DIRECTORY"]).iterdir())


def test_where_it_cannot_be_had(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with using_mps(None) as mps:
        assert not mps.is_used
        assert mps.sentence == "without MPS (nvidia-cuda-mps-control -d ended with exit code 1)"
    with pytest.raises(InvalidInput, match="--mps cannot be had"), using_mps(True):
        pass
    assert notes.read_text() == "start\nstart\n"
    monkeypatch.setenv("PATH", str(notes.parent))
    with using_mps(None) as mps:
        assert mps.sentence == "without MPS (nvidia-cuda-mps-control is not on the PATH)"


def test_it_ends_with_a_killed_process(notes: Path) -> None:
    code = "from fedfeast.studies.side_by_side import mps\nwith mps.using_mps(None): print('on', flush=True); input()"
    user = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"on\n"
        user.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while list(notes.parent.glob("fedfeast-mps-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert notes.read_text() == "start\nquit\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_mps_in_which_cuda_does_not_work_is_not_used(notes: Path) -> None:
    for wanted, sentence in (
        (True, "--mps cannot be had .CUDA does not work in it"),
        (None, "cannot use the CUDA dev"),
    ):
        with pytest.raises(InvalidInput, match=sentence), ExitStack() as stack:
            _reach_cuda(stack, wanted)
    assert notes.read_text() == "start\nquit\n" * 2
