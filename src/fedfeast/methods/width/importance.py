"""Weights by their size, and the thresholds that keep a masked network within a budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.networks import ResNet


@dataclass(frozen=True, eq=False)
class Importance:
    """Positions in groups, each group's sizes from the largest down, with the MACs of keeping that many."""

    groups: Sequence[Tensor]  # global positions
    sizes: Sequence[Tensor]  # sorted, largest first
    macs: Sequence[Tensor]  # running totals along the sizes
    free: Tensor  # 0 where a threshold may apply or the weight is never masked, infinity at pads

    def thresholds(self, budget_macs: float) -> Tensor:
        """Return the least size to keep at each position: as many weights as the budget affords."""
        thresholds = self.free.clone()
        if budget_macs < sum(float(total[-1]) for total in self.macs):
            for group, sizes, count in zip(self.groups, self.sizes, self._counts(budget_macs), strict=True):
                thresholds[group] = _least_kept(sizes, count)
        return thresholds

    def thresholds_by_share(self, share: float) -> Tensor:
        """Return the least size to keep at each position: a share of every group's weights, ties at the border all."""
        thresholds = self.free.clone()
        if share < 1:
            for group, sizes in zip(self.groups, self.sizes, strict=True):
                thresholds[group] = sizes[max(1, int(share * len(sizes))) - 1]
        return thresholds

    def _counts(self, budget_macs: float) -> list[int]:
        """Return how many weights each group keeps: the same share of every group."""
        if len(self.groups) == 1:
            return [int(torch.searchsorted(self.macs[0], budget_macs, right=True))]
        least, most = 0.0, 1.0
        for _ in range(50):  # halvings: far finer than one weight of eleven million
            share = (least + most) / 2
            least, most = (share, most) if self._macs_of(share) <= budget_macs else (least, share)
        return [int(least * len(sizes)) for sizes in self.sizes]

    def _macs_of(self, share: float) -> float:
        counts = [int(share * len(sizes)) for sizes in self.sizes]
        return sum(float(total[count - 1]) for total, count in zip(self.macs, counts, strict=True) if count)


def _least_kept(sizes: Tensor, count: int) -> Tensor:
    """Return the threshold that keeps at most so many sizes; where equal ones straddle the border all are dropped."""
    above_all = sizes.new_tensor(torch.inf)
    if count == 0:
        return above_all
    least = sizes[count - 1]
    straddles = count < len(sizes) and bool(sizes[count] == least)
    return torch.nextafter(least, above_all) if straddles else least


def count_macs(network: ResNet, kept: Tensor) -> int:
    """Return the MACs of the positions that a mask keeps."""
    return int(network.position_macs(network.whole).to(kept.device)[kept].sum())


def rank_positions(network: ResNet, flat: Tensor, layerwise: bool) -> Importance:
    """Sort the weights of convolutions and classifier by size, all together or stage by stage."""
    device = flat.device
    cost = network.position_macs(network.whole).to(device)
    free = torch.full_like(flat, torch.inf)
    for view in network.layout.views(free).values():
        view.zero_()
    groups, sizes, macs = [], [], []
    for names in _grouped(network, layerwise).values():
        member = torch.zeros(network.layout.size, dtype=torch.bool, device=device)
        for view in network.layout.views(member, {name: network.layout.shapes[name] for name in names}).values():
            view.fill_(True)
        positions = member.nonzero().squeeze(1)
        sorted_sizes, order = flat[positions].abs().sort(descending=True, stable=True)
        groups.append(positions)
        sizes.append(sorted_sizes)
        macs.append(cost[positions[order]].to(torch.float64).cumsum(0))
    return Importance(groups, sizes, macs, free)


def _grouped(network: ResNet, layerwise: bool) -> Mapping[str, list[str]]:
    """Return the tensors that may be masked, in one group or by stem, stages and classifier."""
    groups: dict[str, list[str]] = {}
    for name in network.layout.shapes:
        if not name.endswith((".scale", ".shift")):
            groups.setdefault(name.split(".")[0] if layerwise else "all", []).append(name)
    return groups
