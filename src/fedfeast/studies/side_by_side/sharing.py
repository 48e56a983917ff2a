"""One device for several processes: what each gets of its memory and cores, and whether their kernels meet in MPS."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedfeast.engines.devices import MEMORY_VARIABLE, require_device
from fedfeast.errors import InvalidInput
from fedfeast.machine import usable_cores
from fedfeast.planning.device_memory import least_memory
from fedfeast.recipes import Recipe
from fedfeast.studies.side_by_side.memory import NoAnswer, allowed_memory, ask_free_memory, available_memory
from fedfeast.studies.side_by_side.mps import Mps, using_mps, without_mps


@dataclass(frozen=True)
class PendingRun:
    """A run that is to be trained, or trained on."""

    number: int  # among the study's runs
    label: str
    recipe: Recipe
    folder: Path
    log: Path  # for what its process says
    track: tuple[str, ...] = ()  # trackers that it tells


@dataclass(frozen=True)
class Share:
    """What each of several processes gets of a device."""

    at_once: int  # as asked for; a new run's threads are so small a part of the cores
    processes: int  # at a time
    variables: Mapping[str, str]  # that hand it to them
    sentence: str


def refuse_at_once(at_once: int, mps: bool | None) -> None:
    """Refuse numbers of runs that make no sense, and options that would have no effect."""
    if at_once < 1:
        raise InvalidInput(f"--at-once {at_once}: give at least 1.")
    if at_once == 1 and mps is not None:
        word = "--mps" if mps else "--no-mps"
        raise InvalidInput(f"{word} is for runs that share a device: add --at-once 2 or more, or leave it out.")


@contextmanager
def sharing_device(runs: Sequence[PendingRun], at_once: int, mps: bool | None) -> Iterator[Share]:
    """Share the device of runs among so many at a time while the block runs; refuse more than fit."""
    devices = [require_device(run.recipe.engine.device) for run in runs]
    device = next((one for one in devices if one.type == "cuda"), devices[0])
    processes = min(at_once, len(runs))
    with ExitStack() as stack:
        if device.type == "cuda":
            service, free = _reach_cuda(stack, mps)
            room = allowed_memory(device, free)
            _refuse_more_than_fits(runs, at_once, device, room)
            yield _share_of_cuda(at_once, processes, room, service)
        elif mps:
            raise InvalidInput("--mps is for CUDA devices, and these runs are on the CPU: leave it out.")
        else:
            _refuse_more_than_fits(runs, at_once, device, allowed_memory(device, available_memory()))
            cores = usable_cores()
            sentence = f"{_together(processes)} on the CPU: {max(1, cores // at_once)} of {cores} cores each"
            yield Share(at_once, processes, _threads(at_once), sentence)


def _reach_cuda(stack: ExitStack, wanted: bool | None) -> tuple[Mps, float]:
    """Return the way to the CUDA device, with MPS where it works, and the GiB that are free there."""
    with ExitStack() as trial:
        service = trial.enter_context(using_mps(wanted))
        try:
            free = ask_free_memory(service.variables)
        except NoAnswer as answer:
            if not service.is_used:
                raise InvalidInput(f"a process of its own cannot use the CUDA device: {answer}.") from None
            refused = without_mps(wanted, f"CUDA does not work in it: {answer}")
        else:
            stack.enter_context(trial.pop_all())
            return service, free
    service, free = _reach_cuda(stack, False)
    return replace(service, sentence=refused.sentence), free


def _refuse_more_than_fits(runs: Sequence[PendingRun], at_once: int, device: torch.device, room: float) -> None:
    needs = [least_memory(run.recipe, device) for run in runs]
    most = max(needs)
    fitting = int(room / most)
    if fitting < min(at_once, len(runs)):
        where = "on the GPU" if device.type == "cuda" else "in the main memory"
        remedy = f"give at most {fitting}" if fitting else "free some, or take a smaller recipe"
        raise InvalidInput(
            f"--at-once {at_once} is more than fits: {runs[needs.index(most)].label} takes at least {most:.2f} GiB, "
            f"and {room:.2f} GiB may be used {where}: {remedy}."
        )


def _share_of_cuda(at_once: int, processes: int, room: float, service: Mps) -> Share:
    memory = room / processes
    variables = {**_threads(at_once), **service.variables, MEMORY_VARIABLE: f"{memory:.3f}"}
    sentence = f"{_together(processes)} on the GPU, {memory:.1f} GiB of its memory each, {service.sentence}"
    return Share(at_once, processes, variables, sentence)


def _threads(at_once: int) -> dict[str, str]:
    """Return the variable that keeps libraries to a process's part of the cores, unless the user has set it."""
    part = str(max(1, usable_cores() // at_once))
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", part)}


def _together(processes: int) -> str:
    return f"{processes} runs side by side" if processes > 1 else "1 run"
