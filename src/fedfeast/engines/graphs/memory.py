"""How many client slots a device's memory has room for."""

import os
import sys

import torch

from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.slots import Slot

RESERVED_SHARE = 0.1  # of the device, for evaluation and whatever else runs


def slots_that_fit(context: GraphContext, first: Slot, lanes_a_slot: int) -> int:
    """Return how many slots, the new first one included, fit a device; measured with the largest architecture."""
    if context.device.type != "cuda":
        return sys.maxsize
    before, _ = _free_and_total(context.device)
    first.lanes_for(1)[0].network(context.largest)
    free, total = _free_and_total(context.device)
    room = (free - RESERVED_SHARE * total) / _processes_on_a_device()
    return count_slots(room, first.num_bytes, max(0, before - free), lanes_a_slot)


def count_slots(free_bytes: float, slot_bytes: int, lane_bytes: int, lanes_a_slot: int) -> int:
    """Return how many slots fit where one with a single lane is there already; at least that one."""
    beside_first = free_bytes - (lanes_a_slot - 1) * lane_bytes
    return 1 + max(0, int(beside_first // (slot_bytes + lanes_a_slot * lane_bytes)))


def _free_and_total(device: torch.device) -> tuple[int, int]:
    """Return the free and the whole memory of a device, with nothing held back for later."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return free, total


def _processes_on_a_device() -> int:
    """Return how many processes that torchrun started here share one device."""
    return -(-int(os.environ.get("LOCAL_WORLD_SIZE", "1")) // torch.cuda.device_count())
