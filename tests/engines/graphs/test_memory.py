import sys

import pytest
import torch

from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.graphs import Precision
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.memory import count_slots, slots_that_fit
from fedfeast.engines.graphs.slots import Slot
from fedfeast.federation import LocalSgd
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe


@pytest.mark.parametrize(
    ("free", "slot", "lane", "lanes", "expected"),
    [
        (0, 10, 5, 3, 1),
        (-100, 10, 5, 3, 1),  # there is always the first
        (10 + 24, 10, 5, 3, 1),  # its two other lanes take ten, another slot twenty-five
        (10 + 25, 10, 5, 3, 2),
        (10 + 99, 10, 5, 3, 4),
        (10 + 100, 10, 5, 3, 5),
        (45, 10, 5, 1, 4),
        (45, 10, 0, 3, 5),
    ],
)
def test_slots_beside_the_first(free: int, slot: int, lane: int, lanes: int, expected: int) -> None:
    assert count_slots(free, slot, lane, lanes) == expected


def test_a_cpu_has_room_for_all() -> None:
    method = outline(load_recipe("digits")).method
    precision = Precision(torch.float64, torch.float64)
    shared = GraphContext(method, LocalSgd(), precision, torch.device("cpu"), (2, 1, 8, 8), False)
    slot = Slot(shared, BatchRecord(shared.input_shape, torch.float64), 0)
    assert slots_that_fit(shared, slot, 3) == sys.maxsize
    assert slot.lanes == [], "nothing had to be tried"
