"""A transformer whose depth, heads and feed-forward width are choices: for tokens, images and sequences of numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfeast.networks.built import elastic

HEAD_WIDTH = 16  # kept, so that more heads are more channels and a head means the same in every size


class Attention(nn.Module):
    """Heads of one width with separate projections, so that leading slices are leading heads."""

    def __init__(self, embedding: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v = (nn.Linear(embedding, heads * HEAD_WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(heads * HEAD_WIDTH, embedding, bias=False)
        nn.init.normal_(self.out.weight, std=0.02)

    def forward(self, features: Tensor) -> Tensor:
        """Attend along the length of (batch, length, embedding)."""
        batch, length, _ = features.shape
        heads = (one(features).view(batch, length, self.heads, HEAD_WIDTH) for one in (self.q, self.k, self.v))
        q, k, v = (one.transpose(1, 2) for one in heads)  # (batch, heads, length, head width)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added after; both start close to adding nothing."""

    def __init__(self, embedding: int, heads: int, hidden: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(embedding), nn.LayerNorm(embedding)
        self.attention = Attention(embedding, heads, causal)
        self.up, self.down = nn.Linear(embedding, hidden), nn.Linear(hidden, embedding)
        self.attention_dropout, self.feed_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return (batch, length, embedding)."""
        attended: Tensor = self.attention_dropout(self.attention(self.attention_norm(features)))
        features = features + attended
        fed: Tensor = self.feed_dropout(self.down(F.gelu(self.up(self.feed_norm(features)))))
        return features + fed


class Tokens(nn.Module):
    """Token ids as a sequence: an embedding each, and what a short convolution makes of it and those just before.

    What attention would have to learn first, which letters stand together, plain SGD finds at once this way.
    """

    def __init__(self, vocabulary: int, embedding: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.symbol = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.symbol.weight, std=0.5)
        self.before = nn.Conv1d(embedding, embedding, context) if context else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (batch, length, embedding); no place sees a later one."""
        features: Tensor = self.symbol(inputs)
        if self.before is None:
            return features
        padded = F.pad(features.transpose(1, 2), (self.context - 1, 0))
        with_those_before: Tensor = features + self.before(padded).transpose(1, 2)
        return with_those_before


class Pieces(nn.Module):
    """Numbers (batch, channels, ...) as a sequence: squares of an image or steps of time, each made an embedding."""

    def __init__(self, shape: tuple[int, ...], patch: int, embedding: int) -> None:
        super().__init__()
        self.patch, self.axes = patch, len(shape) - 1
        pieces = [-(-size // patch) for size in shape[1:]]
        self.length = int(torch.Size(pieces).numel())
        self.project = nn.Linear(shape[0] * patch**self.axes, embedding)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (batch, pieces, embedding); what does not fill a piece is filled with zeros."""
        missing = [-size % self.patch for size in reversed(inputs.shape[2:])]
        features = F.pad(inputs, [side for size in missing for side in (0, size)])
        for axis in range(self.axes):
            features = features.unfold(2 + axis, self.patch, self.patch)
        features = features.movedim(1, 1 + self.axes)  # (batch, pieces ..., channels, patch ...)
        projected: Tensor = self.project(features.flatten(1 + self.axes).flatten(1, self.axes))
        return projected


class Transformer(nn.Module):
    """Embed, add places, blocks, a head: the next token at every place, or one answer for the whole example."""

    def __init__(self, embed: nn.Module, length: int, blocks: list[Block], head: nn.Linear, pooled: bool) -> None:
        super().__init__()
        self.embed, self.pooled = embed, pooled
        self.place = nn.Parameter(0.02 * torch.randn(length, head.in_features))
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(head.in_features), head

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (batch, length, vocabulary) of token ids (batch, length), or (batch, classes) of numbers."""
        features = self.embed(inputs)
        features = features + self.place[: features.shape[1]]
        for block in self.blocks:
            features = block(features)
        features = self.norm(features)
        logits: Tensor = self.head(features.mean(dim=1) if self.pooled else features)
        return logits


@elastic(depth=[1, 2, 4], heads=[1, 2, 4], hidden=[32, 64, 128])
def nested_transformer(  # noqa: PLR0913 - each argument is a choice, a fact of the data or an option
    depth: int,
    heads: int,
    hidden: int,
    *,
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    embedding: int = 64,
    patch: int = 4,
    dropout: float = 0.0,
    pooled: bool | None = None,
    context: int = 5,
) -> nn.Module:
    """Tokens: causal, next-token logits unless pooled; numbers: pieces of a side (patch), pooled class logits."""
    is_tokens = vocabulary is not None
    pooled = not is_tokens if pooled is None else pooled
    embed: nn.Module
    if vocabulary is not None:
        embed, length = Tokens(vocabulary, embedding, context), shape[-1]
    else:
        embed = Pieces(shape if len(shape) > 1 else (1, *shape), patch, embedding)
        length = embed.length
    blocks = [Block(embedding, heads, hidden, is_tokens and not pooled, dropout) for _ in range(depth)]
    head = nn.Linear(embedding, classes if pooled or vocabulary is None else vocabulary)
    return Transformer(embed, length, blocks, head, pooled)
