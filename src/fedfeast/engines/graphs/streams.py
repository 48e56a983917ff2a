"""Streams of a device, and graphs captured on them; on a CPU work simply runs in order."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

Mark = torch.cuda.Event | None
# Memory that captured work shares: what one leaves there holds until another runs. Torch has no public type for it.
Pool = Any


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

    def capture(self, work: Callable[[], None], pool: Pool) -> Callable[[], None]:
        """Capture the work as a graph; return its replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.queue):
            # Other threads may allocate and copy meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        replay: Callable[[], None] = graph.replay
        return replay


def new_pool(device: torch.device) -> Pool:
    """Return a new pool of memory for captured work."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


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
