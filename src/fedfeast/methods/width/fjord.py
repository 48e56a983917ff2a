"""FjORD: ordered dropout, a random affordable width on every mini-batch (Horvath et al., 2021)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedfeast.federation import Client, Parts
from fedfeast.methods.ordered_dropout import OrderedDropout
from fedfeast.methods.tiers import Backbone, Sliced, Tier, TieredMethod, Weighting, narrowed, sliced_network


@dataclass(frozen=True)
class FjORD(OrderedDropout, TieredMethod):
    """Ordered dropout over the widths that a client affords."""

    suits: ClassVar = "A few widths of a plain ResNet, where one pass a step must train all of them in turn."

    network: Sliced
    widths: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)  # shares of the network's channels
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    distillation: bool = False
    backbone: Backbone = "resnet"  # what is sliced: the ResNet, or the elastic network

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FjORD on a post-activation ResNet, or on a variant of the elastic one."""
        backbone, widths = options.get("backbone", cls.backbone), options.get("widths", cls.widths)
        return cls(sliced_network(parts, "fjord", backbone, widths), **options)

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per width."""
        return narrowed(self.network, self.widths)

    def levels_of(self, client: Client) -> tuple[Hashable, ...]:
        """Return every width that the client affords."""
        return tuple(tier.trained for tier in self.affordable(client.budget_macs))
