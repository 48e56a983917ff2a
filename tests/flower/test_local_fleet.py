import os
import socket
import time
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.flower.local_fleet import LocalFleet, free_port, require_free


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(InvalidInput, match=r"port \d+ is in use"):
            require_free(listener.getsockname()[1])
    require_free(free_port())


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_leaving_ends_every_process_and_those_they_started(tmp_path: Path) -> None:
    with LocalFleet(tmp_path / "fleet") as fleet:
        fleet.start("parent", ["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/child; wait"])
        fleet.start("other", ["sleep", "60"])
        while not (tmp_path / "child").is_file() or not (tmp_path / "child").read_text():
            time.sleep(0.05)
        child = int((tmp_path / "child").read_text())
        pids = [child, fleet.processes["parent"].pid]
        fleet.kill("other")
        assert list(fleet.processes) == ["parent"]
        assert all(alive(pid) for pid in pids)
    end = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    assert fleet.log("parent") == ""
    assert (fleet.home / "config.toml").read_text().count("root-certificates") == 1
    assert fleet.environment["FLWR_HOME"] == str(fleet.home)
    assert os.environ.get("FLWR_HOME") != str(fleet.home)
    fleet.remove()
    assert not fleet.folder.exists()
