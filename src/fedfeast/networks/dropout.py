"""Dropout by a stateless hash of (draw, layer, position): the same on any device, in any precision and in any graph."""

from torch import Tensor

from fedfeast.hashed_bits import STEPS, hashed_bits, name_key


def kept_features(draw: Tensor, name: str, features: Tensor, share: float) -> Tensor:
    """Return the features with a share of them at zero and the others scaled up to the same mean."""
    dropped = min(round(share * STEPS), STEPS - 1)  # a share is met to one in 65,536
    if dropped <= 0:
        return features
    if share >= 1:
        return features * 0
    key = (draw ^ name_key(name)).to(features.device)
    kept = hashed_bits(key, features.numel()).view(features.shape) >= dropped - STEPS // 2  # in row-major order
    return features * kept.to(features.dtype).mul_(STEPS / (STEPS - dropped))
