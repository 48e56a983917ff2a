import subprocess
import sys
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.locks import held_alone, held_in_turn


def holder(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds a lock until it is ended."""
    code = (
        "import sys; from pathlib import Path; from fedfeast.locks import held_alone\n"
        f"with held_alone(Path({str(path)!r}), 'busy'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_of_another_process_is_said_and_ends_with_it_however_that_ends(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    process = holder(lock)
    with pytest.raises(InvalidInput, match=r"^somebody is at work$"), held_alone(lock, "somebody is at work"):
        pytest.fail("must not begin")
    process.kill()
    process.communicate()
    with held_alone(lock, "nobody"), pytest.raises(InvalidInput, match="one at a time"):
        held_alone(lock, "one at a time").__enter__()
    with held_in_turn(lock):
        pass


def test_whoever_waits_gets_its_turn(tmp_path: Path) -> None:
    process = holder(tmp_path / ".lock")
    assert process.stdin is not None
    process.stdin.close()  # it lets go a moment later
    with held_in_turn(tmp_path / ".lock"):
        assert process.wait(30) == 0
    assert process.stdout is not None
    process.stdout.close()
