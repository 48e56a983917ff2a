"""Dropout by a stateless hash of (draw, layer, position): the same on any device, in any precision and in any graph."""

import hashlib
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

# The constants of splitmix64 (Steele, Lea, Flood 2014), read as signed numbers, since tensors have no unsigned ones.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST, SECOND = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
STEPS = 1 << 16  # a hash of 64 bits decides over four positions, so a share is met to one in 65,536


def kept_features(draw: Tensor, name: str, features: Tensor, share: float) -> Tensor:
    """Return the features with a share of them at zero and the others scaled up to the same mean."""
    dropped = min(round(share * STEPS), STEPS - 1)
    if dropped <= 0:
        return features
    if share >= 1:
        return features * 0
    kept = _bits(draw, name, features.shape, features.device) >= dropped - STEPS // 2
    return features * kept.to(features.dtype).mul_(STEPS / (STEPS - dropped))


def _bits(draw: Tensor, name: str, shape: torch.Size, device: torch.device) -> Tensor:
    """Return an int16, each with the same chance, for every position, counted in row-major order."""
    size = prod(shape)
    key = _mixed(draw ^ _name_key(name))
    words = _mixed(torch.arange(-(-size // 4), device=device).mul_(GOLDEN).add_(key))
    return words.view(torch.int16)[:size].view(shape)


def _mixed(words: Tensor) -> Tensor:
    """Return the finaliser of splitmix64; products wrap around."""
    words = (words ^ _shifted(words, 30)).mul_(FIRST)
    words.bitwise_xor_(_shifted(words, 27)).mul_(SECOND)
    return words.bitwise_xor_(_shifted(words, 31))


def _shifted(words: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros, where torch would repeat the sign."""
    return (words >> places).bitwise_and_((1 << (64 - places)) - 1)


@lru_cache(maxsize=4096)
def _name_key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
