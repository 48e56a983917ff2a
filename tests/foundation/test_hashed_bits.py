"""Random bits by a hash: what whole numbers of Python give, fair, and a function of key and position alone."""

import hashlib

import torch

from fedfeast.hashed_bits import hashed_bits, name_key, named_key


def splitmix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def by_hand(key: int, size: int) -> list[int]:
    """Four signed pieces of 16 bits a hash, lowest first."""
    start = splitmix(key % 2**64)
    words = [splitmix((position * 0x9E3779B97F4A7C15 + start) % 2**64) for position in range(-(-size // 4))]
    pieces = [word >> 16 * part & 0xFFFF for word in words for part in range(4)][:size]
    return [piece - 2**16 if piece >= 2**15 else piece for piece in pieces]


def test_bits_are_those_of_whole_numbers() -> None:
    for key in (-7, 0, 2**63 - 1):
        for size in (0, 1, 35):
            assert hashed_bits(torch.tensor(key), size).tolist() == by_hand(key, size)
    assert name_key("a") % 2**64 == int.from_bytes(hashlib.sha256(b"a").digest()[:8])
    assert named_key(3, "round", 2) == name_key("3/round/2")


def test_bits_are_fair() -> None:
    drawn = torch.stack([hashed_bits(torch.tensor(named_key(0, key)), 1 << 16) for key in range(8)]).double()
    spread = 2**16 / 12**0.5
    assert float(drawn.mean().abs()) < 4 * spread / drawn.numel() ** 0.5
    assert float((torch.corrcoef(drawn) - torch.eye(8)).abs().max()) < 0.02
