"""Nested sampling: ordered dropout as in FjORD (Horvath et al., 2021), over the variants of any elastic network."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedfeast.federation import Parts
from fedfeast.methods.ordered_dropout import OrderedDropout
from fedfeast.methods.served_variants import EnvelopeRouting
from fedfeast.networks import ElasticNetwork
from fedfeast.variants import VariantCache


@dataclass(frozen=True)
class Nested(OrderedDropout, EnvelopeRouting):
    """Ordered dropout over the cached variants that a client affords."""

    suits: ClassVar = (
        "Many sizes of any elastic network at one pass a step; FEAST trains each of them more often, at more compute."
    )

    network: ElasticNetwork
    cache: VariantCache
    distillation: bool = False

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return nested sampling on the elastic network."""
        return cls(parts.elastic, parts.cache, **options)
