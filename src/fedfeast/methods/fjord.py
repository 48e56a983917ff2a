"""FjORD: ordered dropout, a random affordable width on every mini-batch (Horvath et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from fedfeast.federation import Client, Parts
from fedfeast.methods.nested import OrderedDropout
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting, narrowed
from fedfeast.networks import Level, ResNet


@dataclass(frozen=True)
class FjORD(OrderedDropout, TieredMethod):
    """Ordered dropout over the widths that a client affords."""

    network: ResNet
    widths: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    weighting: Weighting = "samples"
    distillation: bool = False

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FjORD on a post-activation ResNet."""
        return cls(parts.resnet_for("fjord"), **options)

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per width."""
        return narrowed(self.network, self.widths)

    def levels_of(self, client: Client) -> tuple[Level, ...]:
        """Return every width that the client affords."""
        return tuple(tier.trained for tier in self.affordable(client.budget_macs))
