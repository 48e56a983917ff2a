"""How many client slots a device's memory has room for."""

import sys

import torch

from fedfeast.engines.graphs.slots import Slot
from fedfeast.engines.graphs.workshop import Workshop

RESERVED_SHARE = 0.1  # of the device, for evaluation and whatever else runs


def slots_that_fit(workshop: Workshop, first: Slot, lanes_a_slot: int) -> int:
    """Return how many slots, the first one included, fit a device; measured with the largest architecture."""
    if workshop.device.type != "cuda":
        return sys.maxsize
    before, _ = torch.cuda.mem_get_info(workshop.device)
    first.lanes_for(1)[0].network(workshop.largest)
    torch.cuda.synchronize(workshop.device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(workshop.device)
    return count_slots(free - RESERVED_SHARE * total, first.num_bytes, max(0, before - free), lanes_a_slot)


def count_slots(free_bytes: float, slot_bytes: int, lane_bytes: int, lanes_a_slot: int) -> int:
    """Return how many slots fit where one with a single lane is there already; at least that one."""
    beside_first = free_bytes - (lanes_a_slot - 1) * lane_bytes
    return 1 + max(0, int(beside_first // (slot_bytes + lanes_a_slot * lane_bytes)))
