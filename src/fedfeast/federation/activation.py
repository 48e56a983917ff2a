"""Which positions the local steps of a client activated, and in how many of them."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

import torch
from torch import Tensor

from fedfeast.federation.records import Pass
from fedfeast.networks import Layout, Network

# How many of a client's steps passed through exactly these networks.
Activations = Mapping[frozenset[Hashable], int]


def count_activations(steps: Iterable[Iterable[Pass]]) -> Activations:
    """Count the steps of a client by the networks that they passed through."""
    return Counter(frozenset(one.architecture for one in passes) for passes in steps)


def activated_shares(network: Network, layout: Layout, activations: Activations, device: torch.device) -> Tensor:
    """Return, for every position of a client's vector, the share of its steps that activated it, in float64.

    Without a step it is 0 everywhere.
    """
    shares = torch.zeros(layout.size, dtype=torch.float64, device=device)
    total = sum(activations.values())
    if not total:
        return shares
    step = torch.zeros(layout.size, dtype=torch.bool, device=device)
    for architectures, count in activations.items():
        step.zero_()
        for architecture in architectures:
            for view in layout.views(step, network.shapes(architecture)).values():
                view.fill_(True)
        shares.add_(step, alpha=count)
    return shares.div_(total)


def counted_by(shares: Tensor, counted: Tensor | None) -> Tensor:
    """Return how much an answer counts where a method's own mask may leave it out."""
    return shares if counted is None else torch.where(counted, shares, 0.0)
