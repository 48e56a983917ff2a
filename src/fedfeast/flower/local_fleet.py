"""A fleet of real processes on this machine: SuperLink, gateway, SuperNodes, runs; for the demonstration and tests."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from fedfeast.errors import InvalidInput
from fedfeast.flower.credentials import ServerCredentials, make_node_key, make_server_credentials

CONNECTION = "fleet"  # the name of the SuperLink in Flower's own configuration
START_SECONDS = 60.0


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def require_free(port: int) -> None:
    """Refuse a port that somebody listens on."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise InvalidInput(f"port {port} is in use: stop what listens there, or give another --port.")


def write_connection(home: Path, address: str, authority: Path) -> None:
    """Tell flwr, in a folder of its own, where a SuperLink is."""
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{address}"\n'
        f'root-certificates = "{authority}"\n'
    )


def descendants(pid: int) -> dict[int, str]:
    """Return a process's children and theirs, by number, with their commands; none where there is no /proc."""
    # Flower puts its helpers into sessions of their own, and they name the parent that they outlive for a moment.
    commands: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            number = int(place.name)
            commands[number] = _command(number)
            named = re.search(r"--parent-pid (\d+)", commands[number])
            parent = named[1] if named else (place / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(number)
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found[child] = commands[child]
            waiting.append(child)
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _kill(commands: Mapping[int, str]) -> None:
    for pid, command in commands.items():
        with suppress(OSError):
            if _command(pid) == command:  # else the number belongs to another process by now
                os.kill(pid, signal.SIGKILL)


class LocalFleet:
    """Processes with a folder of their own; leaving the block ends all of them."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        self.superlink_port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._orphans: dict[int, str] = {}

    def __enter__(self) -> Self:
        require_free(self.port)
        make_server_credentials(self.credentials.authority.parent, ["127.0.0.1"])
        write_connection(self.home, self.superlink_address, self.credentials.authority)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.processes)[::-1]:
            self.stop(name)
        _kill(self._orphans)

    @property
    def home(self) -> Path:
        """Flower's own folder."""
        return self.folder / "flwr"

    @property
    def credentials(self) -> ServerCredentials:
        """The server's files."""
        folder = self.folder / "credentials"
        return ServerCredentials.within(folder)

    @property
    def address(self) -> str:
        """Where the gateway listens: all that nodes, and strangers, can reach."""
        return f"127.0.0.1:{self.port}"

    @property
    def superlink_address(self) -> str:
        """Where the SuperLink itself listens, for the operator on this machine."""
        return f"127.0.0.1:{self.superlink_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every process: Flower's folder, no telemetry, nothing installed at run time."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "PYTHONUNBUFFERED": "1",
        }

    def start_superlink(self) -> None:
        """Start the SuperLink, and the gateway where none runs yet; its state is a file, so that it may start again."""
        files = self.credentials
        words = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.superlink_port)]
        words += ["--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation"]
        words += ["--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.certificate)]
        words += ["--ssl-keyfile", str(files.key), "--enable-supernode-auth"]
        self.start("superlink", words)
        self._wait_until_open("superlink", self.superlink_port)
        if "gateway" not in self.processes:
            words = ["--certificates", str(files.authority.parent), "--superlink", self.superlink_address]
            words += ["--host", "127.0.0.1", "--port", str(self.port)]
            self.start("gateway", [sys.executable, "-m", "fedfeast", "fleet", "gateway", *words])
            self._wait_until_open("gateway", self.port)

    def start_node(self, name: str, config: Mapping[str, str | float | int], register: bool = True) -> None:
        """Start a SuperNode, which reaches the gateway alone; its key is made and registered first."""
        words = ["flower-supernode", "--superlink", self.address, "--port", str(free_port())]
        settings = " ".join(
            f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in config.items()
        )
        words += ["--node-config", settings]
        key = self.folder / "keys" / name
        if not key.exists():
            make_node_key(key.parent, name)
            if register:
                # A registered name is the only one that a node may then call itself.
                named = ["--name", str(config["name"])] if "name" in config else []
                self.flwr("supernode", "register", f"{key}.pub", CONNECTION, *named)
        words += ["--root-certificates", str(self.credentials.authority), "--auth-supernode-private-key", str(key)]
        self.start(name, words)

    def run_words(self, app: Path, settings: Mapping[str, str]) -> list[str]:
        """Return the command that hands an app to the SuperLink."""
        words = ["flwr", "run", str(app), CONNECTION]
        for key, value in settings.items():
            words += ["--run-config", f'{key}="{value}"']
        return words

    def submit(self, app: Path, settings: Mapping[str, str]) -> str:
        """Hand an app to the SuperLink; return what flwr says."""
        return self._call(self.run_words(app, settings))

    def flwr(self, *words: str) -> str:
        """Run one command of flwr to its end; return what it says."""
        return self._call(["flwr", *words])

    def start(self, name: str, words: Sequence[str]) -> None:
        """Start a process of one's own session, its output in a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._found(words),
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """Return what a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str, alone: bool = False) -> None:
        """End a process at once, and those it started as a power cut would; alone, they are left until the end."""
        started = self.started_by(name)
        self.processes[name].kill()
        self.processes.pop(name).wait()
        if alone:
            self._orphans |= started
        else:
            _kill(started)

    def stop(self, name: str, patience: float = 10.0) -> None:
        """End a process politely, and what is left of those it started without mercy."""
        process, started = self.processes[name], self.started_by(name)
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
            process.kill()
        self.processes.pop(name).wait()
        _kill(started)

    def started_by(self, name: str) -> dict[int, str]:
        """Return the processes that a process started, and those that they started: number -> command."""
        return descendants(self.processes[name].pid)

    def remove(self) -> None:
        """Delete the fleet's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_until_open(self, name: str, port: int) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.processes[name].poll() is not None:
                break
            time.sleep(0.2)
        raise RuntimeError(f"the {name} did not start: {self.log(name)[-2000:]}")

    def _call(self, words: Sequence[str]) -> str:
        done = subprocess.run(
            self._found(words), env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def _found(self, words: Sequence[str]) -> list[str]:
        """Return a command with its program beside this Python, where Flower is installed."""
        beside = Path(sys.executable).parent / words[0]
        return [str(beside) if beside.exists() else words[0], *words[1:]]
