"""The processes that torchrun started for one training, and what they say to each other."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from fedfeast.errors import InvalidInput

T = TypeVar("T")
TIMEOUT = timedelta(days=1)  # ranks wait while rank 0 measures the test curve; a dead process is noticed at once
PATIENCE = timedelta(seconds=20)  # for the sentence of the rank that speaks


class LostRank(Exception):
    """Another process of this training ended, so that no further round can be finished."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among those of its training; without torchrun it is alone and every exchange is trivial."""

    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine
    through_host: bool = True  # tensors are added up in host memory, as ranks that share a GPU must
    store: Any = None  # a torch.distributed.Store, a name that torch does not export to type checkers

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and shows progress."""
        return self.rank == 0

    def from_leader(self, work: Callable[[], T]) -> T:
        """Do something on rank 0 alone and return its outcome on every rank; bad input there is raised on all."""
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.leads:
            try:
                outcome[0] = work()
            except InvalidInput as error:
                outcome[1] = str(error)
        with noticing_losses():
            dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise InvalidInput(outcome[1])
        answer: T = outcome[0]
        return answer

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with noticing_losses():
            dist.all_gather_object(values, value)
        return values

    def add_up_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the ranks, the same bits on each of them."""
        if self.size == 1:
            return
        summed = tensor.cpu() if self.through_host else tensor  # a CPU tensor is its own copy in host memory
        with noticing_losses():
            dist.all_reduce(summed)
        if summed is not tensor:
            tensor.copy_(summed)

    def say_once(self, speak: Callable[[], None]) -> None:
        """Let the first rank that has something to say say it; the others return when it is said."""
        # torchrun ends all processes as soon as one fails, so nobody may leave before the sentence is out.
        if self.store is None:
            speak()
        elif self.store.add("fedfeast/speakers", 1) == 1:
            speak()
            self.store.set("fedfeast/said", "yes")
        else:
            with suppress(RuntimeError):  # the store may end with the speaker
                self.store.wait(["fedfeast/said"], PATIENCE)


@cache
def join_ranks() -> Ranks:
    """Join the processes that torchrun started, once; where it started none, this process is alone."""
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(os.environ) or os.environ["WORLD_SIZE"] == "1":
        return Ranks()
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    devices = torch.cuda.device_count()
    if devices:
        torch.cuda.set_device(local_rank % devices)  # from here on "cuda" means this one
    # Small things always travel over gloo; where every rank has a GPU of its own, tensors travel over nccl.
    backend = "cpu:gloo,cuda:nccl" if devices and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    atexit.register(_leave)
    ranks = Ranks(rank, size, local_size, store=store)
    own_device = local_size <= devices and dist.is_nccl_available()
    return Ranks(rank, size, local_size, not all(ranks.gather(own_device)), store)


def _leave() -> None:
    with suppress(RuntimeError):  # after a loss there is nobody to take leave of
        dist.destroy_process_group()


@contextmanager
def noticing_losses() -> Iterator[None]:
    """Turn the error of a broken connection into its meaning."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # a RuntimeError too, and this rank's own
    except RuntimeError as error:
        raise LostRank(f"another process of this training was lost ({error})") from error
