"""The queue of a CPU; those of a CUDA device are tested where there is one."""

import torch

from fedfeast.engines.graphs.streams import InOrder, current_stream, new_pool, new_stream

CPU = torch.device("cpu")


def test_a_cpu_has_one_queue_and_no_pools() -> None:
    assert isinstance(current_stream(CPU), InOrder)
    assert isinstance(new_stream(CPU, priority=-5), InOrder)
    assert new_pool(CPU) is None


def test_work_runs_at_once_and_in_order() -> None:
    stream, values = new_stream(CPU), torch.zeros(())
    with stream.entered():
        values += 1
    assert stream.mark() is None
    stream.wait_for(stream.mark())
    stream.finish()
    assert float(values) == 1


def test_captured_work_is_the_work_itself() -> None:
    done = []
    replay = new_stream(CPU).capture(lambda: done.append(1), new_pool(CPU))
    assert done == [], "captured, not run"
    replay()
    replay()
    assert done == [1, 1]


def test_work_is_rehearsed_by_doing_it() -> None:
    done: list[int] = []
    new_stream(CPU).rehearse(lambda: done.append(1))
    assert done == [1]
