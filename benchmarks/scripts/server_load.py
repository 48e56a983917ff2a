"""The model server under load, two measurements with the generator on the same machine.

Open loop: /api/choose is asked 100 times a second, whether answers come or not; a time counts from the moment a request
was due. Closed loop: 200 clients at once choose and download a network of digits' size, again and again; the server's
resident memory is read meanwhile.
"""

import argparse
import asyncio
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from result_files import write_result

from fedfeast.machine import processor_and_cores
from fedfeast.randomness import named_generator
from fedfeast.runs import train

SHORT = {"training.rounds": 2, "evaluation.every_rounds": 1}
LEAST_MACS, GREATEST_MACS = 1.3e5, 1e7
MEMORY_EVERY_SECONDS = 0.5
MOST_IDLE_SECONDS = 3.0  # a connection is used again within that; the server closes one after 5


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection to the server, kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: str) -> "Connection":
        place = urlsplit(address)
        return cls(*await asyncio.open_connection(place.hostname, place.port))

    async def get(self, path: str) -> Answer:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return Answer(int(head[0].split()[1]), headers, await self._reader.readexactly(int(headers["content-length"])))

    def close(self) -> None:
        self._writer.close()


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Train a short run and serve it; yield the address and the process's number."""
    with tempfile.TemporaryDirectory() as folder:
        run = train("digits", Path(folder) / "digits", SHORT)
        command = [sys.executable, "-m", "fedfeast", "serve", str(run.folder.path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().split()[1], process.pid
            finally:
                process.terminate()


async def open_loop(address: str, rate: int, seconds: float) -> dict[str, Any]:
    """Ask at a fixed rate; return times in milliseconds and what went wrong."""
    generator = named_generator(0, "open loop")
    idle: list[tuple[float, Connection]] = []
    times: list[float] = []
    late: list[float] = []
    statuses: Counter[str] = Counter()

    async def connect() -> Connection:
        while idle:
            since, connection = idle.pop()
            if time.perf_counter() - since < MOST_IDLE_SECONDS:
                return connection
            connection.close()
        return await Connection.open(address)

    async def ask(budget: float, due: float) -> None:
        late.append(1000 * (time.perf_counter() - due))
        try:
            connection = await connect()
            answer = await connection.get(f"/api/choose?max_macs={budget:.0f}")
        except (OSError, asyncio.IncompleteReadError) as error:
            statuses[type(error).__name__] += 1
            return
        times.append(1000 * (time.perf_counter() - due))
        statuses[str(answer.status)] += 1
        idle.append((time.perf_counter(), connection))

    started = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(_budget(generator), due)))
    await asyncio.gather(*tasks)
    for _, connection in idle:
        connection.close()
    return {
        "rate": rate,
        "seconds": round(time.perf_counter() - started, 1),
        "statuses": dict(statuses),
        "errors": sum(count for status, count in statuses.items() if status != "200"),
        "milliseconds": _percentiles(times),
        "generator_late_ms_p95": round(float(np.percentile(late, 95)), 2),
        "connections": len(idle),
    }


async def closed_loop(address: str, process: int, clients: int, seconds: float) -> dict[str, Any]:
    """Let clients choose and download, all at once; return counts, times and the server's memory."""
    statuses: Counter[str] = Counter()
    choices: list[float] = []
    downloads: list[float] = []
    received = 0
    memory = [resident_megabytes(process)]
    end = time.perf_counter() + seconds

    async def device(number: int) -> None:
        nonlocal received
        generator = named_generator(0, "client", number)
        connection = await Connection.open(address)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            chosen = await connection.get(f"/api/choose?max_macs={_budget(generator):.0f}")
            choices.append(1000 * (time.perf_counter() - begun))
            begun = time.perf_counter()
            file = await connection.get(json.loads(chosen.body)["variant"]["onnx"])
            downloads.append(1000 * (time.perf_counter() - begun))
            whole = hashlib.sha256(file.body).hexdigest() == file.headers["x-sha256"]
            statuses[str(file.status) if whole else "wrong bytes"] += 1
            received += len(file.body)
        connection.close()

    async def watch() -> None:
        while time.perf_counter() < end:
            await asyncio.sleep(MEMORY_EVERY_SECONDS)
            memory.append(resident_megabytes(process))

    outcomes = await asyncio.gather(watch(), *(device(number) for number in range(clients)), return_exceptions=True)
    statuses.update(type(outcome).__name__ for outcome in outcomes if isinstance(outcome, BaseException))
    quarter = max(1, len(memory) // 4)
    return {
        "clients": clients,
        "seconds": seconds,
        "statuses": dict(statuses),
        "errors": sum(count for status, count in statuses.items() if status != "200"),
        "downloads_per_second": round(len(downloads) / seconds, 1),
        "received_megabytes": round(received / 1e6),
        "choose_milliseconds": _percentiles(choices),
        "download_milliseconds": _percentiles(downloads),
        "memory_megabytes": {
            "before": memory[0],
            "second_quarter": round(float(np.mean(memory[quarter : 2 * quarter])), 1),
            "last_quarter": round(float(np.mean(memory[-quarter:])), 1),
            "peak": max(memory),
        },
    }


def resident_megabytes(process: int) -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


async def measure(seconds: float, rate: int, clients: int) -> dict[str, Any]:
    """Take both measurements, one after the other, of one server."""
    with server() as (address, process):
        connection = await Connection.open(address)
        listed = json.loads((await connection.get("/api/variants")).body)["variants"]
        for variant in listed:  # built before anything is measured
            await connection.get(variant["onnx"])
        connection.close()
        load = os.getloadavg()[0]
        first = await open_loop(address, rate, seconds)
        second = await closed_loop(address, process, clients, seconds)
    return {
        "date": date.today().isoformat(),
        "hardware": processor_and_cores(),
        "versions": {name: version(name) for name in ("fastapi", "starlette", "uvicorn", "h11")},
        "python": platform.python_version(),
        "load_before": round(load, 2),
        "open_loop": first,
        "closed_loop": second,
    }


def _budget(generator: np.random.Generator) -> float:
    return float(np.exp(generator.uniform(np.log(LEAST_MACS), np.log(GREATEST_MACS))))


def _percentiles(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    wanted = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    return {name: round(float(np.percentile(times, one)), 2) for name, one in wanted.items()}


def write(result: dict[str, Any], command: str, file: Path) -> None:
    """Write the result as Markdown, and as JSON beside it."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    first, second = result["open_loop"], result["closed_loop"]
    memory = second["memory_megabytes"]
    rows = "\n".join(
        f"| {name} | {' | '.join(f'{times[key]:.1f}' for key in ('p50', 'p95', 'p99', 'max'))} |"
        for name, times in (
            (f"open loop: choose, {first['rate']} a second", first["milliseconds"]),
            (f"{second['clients']} clients: choose", second["choose_milliseconds"]),
            (f"{second['clients']} clients: download", second["download_milliseconds"]),
        )
    )
    text = f"""# The model server under load, {result["date"]}

{result["hardware"]}; Python {result["python"]}, {versions}; load average before it {result["load_before"]}. The
generator runs on the same machine.

`{command}`

| milliseconds | p50 | p95 | p99 | max |
|---|---|---|---|---|
{rows}

Open loop: {sum(first["statuses"].values())} requests in {first["seconds"]} s, {first["errors"]} errors, over
{first["connections"]} connections; times count from when a request was due (the generator itself was
{first["generator_late_ms_p95"]} ms late at its 95th percentile).

{second["clients"]} clients at once for {second["seconds"]:g} s: {sum(second["statuses"].values())} networks chosen and
downloaded ({second["downloads_per_second"]} a second, {second["received_megabytes"]} MB, every file's hash checked),
{second["errors"]} errors. The server's resident memory: {memory["before"]} MB before, {memory["second_quarter"]} MB on
average over the second quarter of the time, {memory["last_quarter"]} MB over the last, {memory["peak"]} MB at most.
"""
    write_result(file, text, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--out", type=Path, help="a Markdown file to write; JSON goes beside it")
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.seconds, arguments.rate, arguments.clients))
    print(json.dumps(result, indent=2))
    if arguments.out is not None:
        given = f"--seconds {arguments.seconds:g} --rate {arguments.rate} --clients {arguments.clients}"
        write(result, f"python benchmarks/scripts/server_load.py {given}", arguments.out)


if __name__ == "__main__":
    main()
