"""Streams of a device, and graphs captured on them; on a CPU work simply runs in order."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, Protocol, TypeVar

import torch

Mark = torch.cuda.Event | None
# Memory that captured work shares: what one leaves there holds until another runs. Torch has no public type for it.
Pool = Any

Result = TypeVar("Result")

_BROKEN: list[torch.cuda.CUDAGraph] = []  # torch still asks them whether memory of the host is theirs


class Stream(Protocol):
    """A queue of work; queues run side by side except where one waits for another."""

    def entered(self) -> AbstractContextManager[object]:
        """Return a context in which work goes to this queue."""
        ...

    def mark(self) -> Mark:
        """Return a mark behind all work given so far."""
        ...

    def wait_for(self, mark: Mark) -> None:
        """Let later work here wait until all work before the mark is done."""
        ...

    def finish(self) -> None:
        """Wait until all work given so far is done."""
        ...

    def rehearse(self, work: Callable[[], object]) -> None:
        """Do the work; raise where it waits for the device, which no capture survives."""
        ...

    def capture(self, work: Callable[[], None], pool: Pool) -> Callable[[], None]:
        """Return a function that does the work again, from the same memory to the same memory."""
        ...


class InOrder:
    """The only queue of a CPU."""

    def entered(self) -> AbstractContextManager[object]:
        """Return a context that changes nothing."""
        return nullcontext()

    def mark(self) -> Mark:
        """Return nothing: all work given so far is done."""
        return None

    def wait_for(self, mark: Mark) -> None:
        """Nothing runs out of order."""

    def finish(self) -> None:
        """Nothing is left to wait for."""

    def rehearse(self, work: Callable[[], object]) -> None:
        """Do the work."""
        work()

    def capture(self, work: Callable[[], None], pool: Pool) -> Callable[[], None]:
        """Return the work itself."""
        return work


class CudaStream:
    """A CUDA stream."""

    def __init__(self, queue: torch.cuda.Stream) -> None:
        self.queue = queue

    def entered(self) -> AbstractContextManager[object]:
        """Return a context in which work goes to this stream."""
        return torch.cuda.stream(self.queue)

    def mark(self) -> Mark:
        """Return a mark behind all work given so far."""
        event: torch.cuda.Event = self.queue.record_event()
        return event

    def wait_for(self, mark: Mark) -> None:
        """Let later work here wait until all work before the mark is done."""
        if mark is not None:
            self.queue.wait_event(mark)

    def finish(self) -> None:
        """Wait until all work given so far is done."""
        self.queue.synchronize()

    def rehearse(self, work: Callable[[], object]) -> None:
        """Do the work; raise where it waits for the device: a capture that this breaks may leave traces."""
        with torch.cuda.stream(self.queue), _refused_waiting():
            work()

    def capture(self, work: Callable[[], None], pool: Pool) -> Callable[[], None]:
        """Capture the work as a graph; return its replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.queue), _no_collection():
            # Other threads may allocate and copy meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # that the capture has failed
                    _end_capture(graph, pool)
                raise
            _end_capture(graph, pool)
        replay: Callable[[], None] = graph.replay
        return replay


class Branch:
    """A second branch of the graph that is being captured, for work that the first does not wait for.

    What is not being captured runs in order. The branch goes last on the device: nobody waits for it yet.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: list[object] = []

    def run(self, work: Callable[[], Result], *reads: object) -> Result:
        """Do the work beside what comes; what it reads keeps its memory until the branches meet."""
        if not _is_capturing(self._device):
            return work()
        self._held.append(reads)
        queue = _branch_queue(self._device)
        queue.wait_for(current_stream(self._device).mark())
        with queue.entered():
            return work()

    def join(self) -> None:
        """Let what comes wait for the branch."""
        if self._held:
            current_stream(self._device).wait_for(_branch_queue(self._device).mark())
            self._held.clear()


def _is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@cache
def _branch_queue(device: torch.device) -> Stream:
    """Return the stream on which branches are captured: one at a time, and a graph knows no streams when it runs."""
    return new_stream(device)


def _end_capture(graph: torch.cuda.CUDAGraph, pool: Pool) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        # Where CUDA refuses, torch would go on as if captured: no memory could ever be freed again.
        _BROKEN.append(graph)
        device = torch.cuda.current_device()
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
        raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from collecting garbage: to free some of it, graphs above all, is forbidden while one is captured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _refused_waiting() -> Iterator[None]:
    """Let every operation that waits for the device raise, on this thread and on autograd's."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not notice all: a capture notices the others
        torch.cuda.set_sync_debug_mode(mode)


def new_pool(device: torch.device) -> Pool:
    """Return a new pool of memory for captured work."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def release_unused() -> None:
    """Give memory that torch keeps for later back to the device: while a graph is captured, torch gives back none."""
    torch.cuda.empty_cache()


def current_stream(device: torch.device) -> Stream:
    """Return the stream that work goes to by default."""
    return CudaStream(torch.cuda.current_stream(device)) if device.type == "cuda" else InOrder()


def most_urgent(device: torch.device) -> int:
    """Return the priority number that goes before all others."""
    if device.type != "cuda":
        return 0
    _, greatest = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]  # it is static
    return int(greatest)


def new_stream(device: torch.device, priority: int = 0) -> Stream:
    """Return a new stream of a device; a lower priority number goes first."""
    if device.type != "cuda":
        return InOrder()
    return CudaStream(torch.cuda.Stream(device, priority=priority))  # type: ignore[no-untyped-call]
