"""A float32 vector in few bytes, given another one that it came from: nothing is rounded, every bit comes back."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20  # positions that share a table of multiples
# Positions that were sent and never activated are all multiplied by the same few factors, up to rounding: a position is
# such a multiple of where it came from if the binary logarithm of the quotient falls into a bin with many others.
BINS_PER_OCTAVE, LEAST_OCTAVE, MOST_OCTAVE = 1 << 16, -8, 1
LEAST_MEMBERS = 64
SAME, FREE = 0, 255  # what a position is: as it was, neither, or (between) a multiple and a small remainder

Vector = NDArray[np.float32]
Integers = NDArray[np.int32]


def join(sections: Sequence[bytes]) -> bytes:
    """Return byte strings one behind another, each with its length before it."""
    return b"".join(struct.pack("<Q", len(section)) + section for section in sections)


def part(joined: bytes) -> list[bytes]:
    """Return the byte strings that were joined; ValueError where something is missing."""
    sections, place = [], 0
    while place < len(joined):
        if place + 8 > len(joined):
            raise ValueError("a length is cut off")
        (length,) = struct.unpack_from("<Q", joined, place)
        place += 8 + length
        if place > len(joined):
            raise ValueError("a section is cut off")
        sections.append(joined[place - length : place])
    return sections


def encode(values: Vector, origin: Vector) -> bytes:
    """Return what turns the origin into the values."""
    return join(
        [_encode_block(values[at : at + BLOCK], origin[at : at + BLOCK]) for at in range(0, len(values), BLOCK)]
    )


def decode(packed: bytes, origin: Vector) -> Vector:
    """Return the values, bit for bit."""
    blocks = part(packed)
    if len(blocks) != -(-len(origin) // BLOCK):
        raise ValueError("these are weights of another network")
    pieces = [_decode_block(block, origin[at * BLOCK : (at + 1) * BLOCK]) for at, block in enumerate(blocks)]
    return np.concatenate(pieces) if pieces else origin.copy()


def _encode_block(values: Vector, origin: Vector) -> bytes:
    bits, before = values.view(np.int32), origin.view(np.int32)
    changed = np.flatnonzero(bits != before)
    bins, quotients = _bins(values[changed], origin[changed])
    members = np.bincount(bins, minlength=1)
    members[0] = 0  # no multiple
    common = np.argsort(members)[::-1][: FREE - 1]
    common = common[members[common] >= LEAST_MEMBERS]
    labels_of = np.full(len(members), FREE, dtype=np.uint8)
    labels_of[common] = np.arange(1, len(common) + 1)
    of_changed = labels_of[bins]
    sums = np.bincount(of_changed, quotients, minlength=FREE + 1)[1 : len(common) + 1]
    multiples = sums / members[common]
    is_multiple = of_changed != FREE
    remainders = _remainders(bits, before, changed[is_multiple], multiples, of_changed[is_multiple])
    is_small = np.abs(remainders) < 128
    of_changed[np.flatnonzero(is_multiple)[~is_small]] = FREE
    labels = np.zeros(len(values), dtype=np.uint8)
    labels[changed] = of_changed
    free = np.flatnonzero(labels == FREE)
    return join(
        [
            multiples.astype("<f8").tobytes(),
            zlib.compress(labels.tobytes(), 6),
            _squeeze(remainders[is_small].astype(np.int8).view(np.uint8)),
            *_encode_free(bits[free], before[free]),
        ]
    )


def _decode_block(packed: bytes, origin: Vector) -> Vector:
    multiples, labels, remainders, kind, *planes = part(packed)
    found = np.frombuffer(zlib.decompress(labels), dtype=np.uint8)
    if len(found) != len(origin):
        raise ValueError("these are weights of another network")
    before = origin.view(np.int32)
    bits = before.copy()
    places = np.flatnonzero((found != SAME) & (found != FREE))
    table = np.frombuffer(multiples, dtype="<f8")
    bits[places] = _multiplied(before[places], table, found[places]) + np.frombuffer(
        zlib.decompress(remainders), dtype=np.int8
    )
    free = np.flatnonzero(found == FREE)
    bits[free] = _decode_free(kind, planes, before[free])
    return bits.view(np.float32)


def _bins(values: Vector, origin: Vector) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return into which bin every quotient falls, 0 for those that are no multiple, and the quotients."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = values.astype(np.float64) / origin
        octaves = np.log2(quotients)
    within = (octaves >= LEAST_OCTAVE) & (octaves < MOST_OCTAVE)
    octaves, quotients = np.where(within, octaves, 0.0), np.where(within, quotients, 0.0)
    bins = ((octaves - LEAST_OCTAVE) * BINS_PER_OCTAVE).astype(np.int64) + 1
    return np.where(within, bins, 0), quotients


def _multiplied(before: Integers, multiples: NDArray[np.float64], labels: NDArray[np.uint8]) -> Integers:
    return (before.view(np.float32) * multiples[labels.astype(np.int64) - 1]).astype(np.float32).view(np.int32)


def _remainders(
    bits: Integers,
    before: Integers,
    places: NDArray[np.int64],
    multiples: NDArray[np.float64],
    labels: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Return how many representable numbers lie between what a position is and what its multiple says."""
    return bits[places].astype(np.int64) - _multiplied(before[places], multiples, labels)


def _encode_free(bits: Integers, before: Integers) -> list[bytes]:
    """Return numbers as planes of bytes: as they are, or as differences where these take less."""
    unsigned = bits.view(np.uint32)
    turned = (unsigned << np.uint32(1)) | (unsigned >> np.uint32(31))  # the exponent alone in the first byte
    difference = bits - before  # wraps around, and back
    small: NDArray[np.uint32] = ((difference << 1) ^ (difference >> 31)).view(
        np.uint32
    )  # 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
    candidates = [[b"numbers", *_planes(turned)], [b"differences", *_planes(small)]]
    return min(candidates, key=lambda sections: sum(map(len, sections)))


def _decode_free(kind: bytes, planes: Sequence[bytes], before: Integers) -> Integers:
    columns = [np.frombuffer(zlib.decompress(plane), dtype=np.uint8) for plane in planes]
    unsigned = np.stack(columns, axis=1).copy().view(">u4").ravel().astype(np.uint32)
    if len(unsigned) != len(before):
        raise ValueError("these are weights of another network")
    if kind == b"numbers":
        return ((unsigned >> 1) | (unsigned << 31)).view(np.int32)
    return before + ((unsigned >> 1).view(np.int32) ^ -(unsigned & 1).view(np.int32))


def _planes(numbers: NDArray[np.uint32]) -> list[bytes]:
    columns = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    return [_squeeze(np.ascontiguousarray(columns[:, place])) for place in range(4)]


def _squeeze(noise: NDArray[np.uint8]) -> bytes:
    """Compress bytes among which some are more frequent; nothing is looked for that repeats."""
    coder = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(noise.tobytes()) + coder.flush()
