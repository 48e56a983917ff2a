"""Processes of the command line and of scripts, begun with torch imported: real ones, without the seconds it takes."""

import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from fedfeast.app.cli import main

# What commands import when they need it: once, in the process that the others are forked from.
PRELOADED = (
    "sklearn.datasets",
    "matplotlib.backends.backend_agg",
    "fedfeast.app.stopping",
    "fedfeast.runs",
    "fedfeast.studies",
    "fedfeast.presentation.tables",
    "fedfeast.presentation.pictures",
)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, *PRELOADED])


def start(words: Sequence[str], log: Path, variables: Mapping[str, str] | None = None) -> ForkServerProcess:
    """Start the command line in a process of its own; what it says goes into the log."""
    process = FORKS.Process(target=_run, args=(list(words), str(log), dict(variables or {})))
    process.start()
    return process


def run(words: Sequence[str], log: Path, seconds: float = 120) -> str:
    """Run the command line to its end, which must be a good one; return what it said."""
    assert ended(start(words, log), seconds) == 0, log.read_text()
    return log.read_text()


def run_script(path: Path, log: Path, seconds: float = 120) -> str:
    """Run a Python file as the program of a process of its own; return what it said."""
    process = FORKS.Process(target=_run_script, args=(str(path), str(log)))
    process.start()
    assert ended(process, seconds) == 0, log.read_text()
    return log.read_text()


def ended(process: ForkServerProcess, seconds: float = 60) -> int:
    """Wait for a process's end; return its exit code."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"a process took longer than {seconds} s")
    return process.exitcode


def _run_script(path: str, log: str) -> None:
    _say_into(log)
    warnings.simplefilter("error")
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")


def _run(words: list[str], log: str, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    _say_into(log)
    sys.argv = ["fedfeast", *words]
    main()


def _say_into(log: str) -> None:
    place = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(place, stream)
    sys.stdout, sys.stderr = (open(stream, "w", buffering=1, closefd=False) for stream in (1, 2))  # noqa: SIM115
