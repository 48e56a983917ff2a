"""How many clients of a round are expected to be sent each position: a public figure, whoever takes part."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from fedfeast.federation.method import Method
from fedfeast.federation.records import Client, State
from fedfeast.randomness import named_generator

PLANNED_AT_ONCE = 32  # clients: a map may be as long as the global vector


def expected_holders(
    method: Method, state: State, flat: Tensor, clients: Sequence[Client], chance: float, round_index: int
) -> Tensor:
    """Return the expected number, in float64, where each client takes part with the same chance.

    It follows from budgets, the round and the global vector alone. Methods that do not look at the weights send clients
    that afford the same the same; others may follow the budget itself.
    """
    prices = [point.price for point in method.operating_points()]
    budgets = np.array([client.budget_macs for client in clients])
    alike = budgets if method.plans_by_weights else np.searchsorted(prices, budgets, "right")
    counts = Counter(alike.tolist())
    kept = dict(zip(alike.tolist(), clients, strict=True))  # one client stands for all that are alike
    holders = torch.zeros(flat.numel(), dtype=torch.float64, device=flat.device)
    standing = iter(kept.items())
    while together := list(islice(standing, PLANNED_AT_ONCE)):
        one_of_each = [client for _, client in together]
        planned, _ = method.plan_round(state, flat, one_of_each, round_index, named_generator(0, "holders"))
        for (key, _), assignment in zip(together, planned, strict=True):
            assignment.slice_map.increment_(holders, chance * counts[key])
    return holders
