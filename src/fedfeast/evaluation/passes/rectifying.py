"""What follows a folded convolution as one pass over its output, in Triton: shift, rectifier, addition, rectifier."""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS = 2048  # of a program


@triton.jit(do_not_specialize=["num_vectors", "num_channels"])
def _rectify(  # noqa: PLR0913  # pointers and sizes, one by one
    features,
    shift,
    added,
    added_shift,
    num_vectors,
    num_channels,
    VECTOR: tl.constexpr,
    ADD: tl.constexpr,
    SHIFT_ADDED: tl.constexpr,
    SIGNED: tl.constexpr,
    VECTORS: tl.constexpr,
):
    # A vector is a few neighbouring channels of a pixel; channels lie together, so that all features are one row of it.
    vector = tl.program_id(0) * VECTORS + tl.arange(0, VECTORS)
    inner = tl.arange(0, VECTOR)[None, :]
    is_place = (vector < num_vectors)[:, None]
    place = tl.multiple_of(vector * VECTOR, VECTOR)[:, None] + inner
    channel = tl.multiple_of(vector * VECTOR % num_channels, VECTOR)[:, None] + inner
    values = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32)
    values += tl.load(shift + channel, mask=is_place, other=0.0)
    if not SIGNED:
        values = tl.where(values < 0, 0.0, values)  # a maximum would make zeros of what is not a number
    if ADD:
        values += tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
        if SHIFT_ADDED:
            values += tl.load(added_shift + channel, mask=is_place, other=0.0)
        values = tl.where(values < 0, 0.0, values)
    tl.store(features + place, values.to(features.dtype.element_ty), mask=is_place)


def rectify_in_one_pass_(
    features: Tensor,
    shift: Tensor,
    added: Tensor | None = None,
    added_shift: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Do what ``rectify_`` of folded layers does, in float32 and one pass, to channels-last features in place."""
    for one in (features, features if added is None else added):
        assert one.shape == features.shape, "what is added has another shape"
        assert one.is_contiguous(memory_format=torch.channels_last), "the channels of a pixel do not lie together"
    channels = features.shape[1]
    vector = next(size for size in (8, 4, 2, 1) if channels % size == 0)
    count, vectors = features.numel() // vector, ELEMENTS // vector
    _rectify[(triton.cdiv(count, vectors),)](
        features, shift, features if added is None else added, shift if added_shift is None else added_shift,
        count, channels, VECTOR=vector, ADD=added is not None, SHIFT_ADDED=added_shift is not None, SIGNED=signed,
        VECTORS=vectors,
    )  # fmt: skip
    return features
