"""Builders that ship with the package, and a user's own by name."""

from fedfeast.networks.built import Builder
from fedfeast.own_code import find_own


def find_builder(name: str) -> Builder:
    """Return a builder by name."""
    found = find_own(name, "network.builder")
    assert isinstance(found, Builder)
    return found
