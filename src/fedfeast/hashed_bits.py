"""Random bits as a stateless hash of (key, position): the same on any device, in any order and in any graph."""

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

# The constants of splitmix64 (Steele, Lea, Flood 2014), read as signed numbers, since tensors have no unsigned ones.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST, SECOND = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
STEPS = 1 << 16  # the values of an int16: a hash of 64 bits gives those of four positions


def hashed_bits(key: Tensor, size: int) -> Tensor:
    """Return an int16 for every position, each value with the same chance, on the key's device."""
    words = torch.arange(-(-size // 4), device=key.device).mul_(GOLDEN).add_(mixed(key))
    return mixed(words).view(torch.int16)[:size]


def mixed(words: Tensor) -> Tensor:
    """Return the finaliser of splitmix64; products wrap around."""
    words = (words ^ _shifted(words, 30)).mul_(FIRST)
    words.bitwise_xor_(_shifted(words, 27)).mul_(SECOND)
    return words.bitwise_xor_(_shifted(words, 31))


@lru_cache(maxsize=4096)
def name_key(name: str) -> int:
    """Return a number of 64 bits for a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)


def named_key(seed: int, *name: str | int) -> int:
    """Return the key that belongs to a name and a root seed, as ``named_generator`` its generator."""
    return name_key("/".join(map(str, (seed, *name))))


def _shifted(words: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros, where torch would repeat the sign."""
    return (words >> places).bitwise_and_((1 << (64 - places)) - 1)
