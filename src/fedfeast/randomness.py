"""Independent random generators by name, all from one root seed."""

import hashlib

import numpy as np


def named_generator(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator that belongs to a name, e.g. ``named_generator(0, "client", 3, "round", 17)``."""
    digest = hashlib.sha256("/".join(map(str, (seed, *name))).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest))


def legacy_stream(seed: int) -> np.random.RandomState:
    """Return numpy's former generator, whose numbers never change: for draws that others made with it."""
    return np.random.RandomState(seed)
