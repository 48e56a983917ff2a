"""Low-rank adapters of unequal rank on a frozen body: a client trains as many columns as it affords.

Every adapted layer computes W x + B A x with a frozen W; a rank of r keeps the first r rows of A and columns of B,
so that a smaller client's adapter is the leading part of a larger one's. The server averages A and B entry by entry,
each over the clients that hold it. That is not the average of the products: mean(B) mean(A) differs from mean(B A)
by how A and B vary together over the clients, and equals it only where they agree on one of the two. So one round's
result is no client's, and no mean of clients', update of W; small steps keep the difference small, since it is of
second order in what a round changes. What does hold: an entry moves only by clients that trained it, and what lies
beyond a client's rank is left alone.
"""

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import elastic
from fedfeast.networks.shipped.nested_transformer import nested_transformer

RANKS = (2, 4, 8, 16)


class Adapted(nn.Module):
    """A frozen linear layer plus a product of two narrow ones, which starts at zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)  # A
        self.up = nn.Linear(rank, base.out_features, bias=False)  # B
        nn.init.zeros_(self.up.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return W x + B A x; no factor depends on the rank, since then sizes would disagree."""
        adapted: Tensor = self.base(features) + self.up(self.down(features))
        return adapted


def with_adapters(body: nn.Module, rank: int, learns: Sequence[str] = ("head.*",)) -> nn.Module:
    """Return a copy of the body with an adapter on every linear layer; it is frozen but for the named parameters."""
    adapted = copy.deepcopy(body)
    for name, parameter in adapted.named_parameters():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in learns))
    found = [
        (owner, own_name, layer)
        for owner in adapted.modules()
        if not isinstance(owner, nn.MultiheadAttention)  # which reads its layers' weights itself
        for own_name, layer in owner.named_children()
        if isinstance(layer, nn.Linear) and not layer.weight.requires_grad
    ]
    if not found:
        raise InvalidInput("the body has no frozen nn.Linear to adapt: give one that has, or let fewer names learn.")
    for owner, own_name, layer in found:
        owner._modules[own_name] = Adapted(layer, rank)
    return adapted


@elastic(rank=RANKS)
def adapters(  # noqa: PLR0913 - each argument is a choice, a fact of the data or an option
    rank: int,
    *,
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    embedding: int = 64,
    depth: int = 2,
    heads: int = 4,
    hidden: int = 128,
) -> nn.Module:
    """Adapters on a transformer as its seed draws it, the same on every machine; with_adapters takes any other body."""
    facts = {"classes": classes, "shape": shape, "vocabulary": vocabulary}
    body = nested_transformer(depth, heads, hidden, embedding=embedding, **facts)
    return with_adapters(body, rank)
