"""Builders that ship with the package, each one readable file, and a user's own by name."""

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Builder
from fedfeast.networks.shipped.adapters import adapters
from fedfeast.networks.shipped.conv1d import conv1d
from fedfeast.networks.shipped.nested_transformer import nested_transformer
from fedfeast.own_code import find_named

BUILDERS: dict[str, Builder] = {one.name: one for one in (nested_transformer, conv1d, adapters)}


def find_builder(name: str) -> Builder:
    """Return a builder of the package, or a user's own named ``file.py:NAME`` or ``module:NAME``."""
    found = find_named(name, BUILDERS, "network.builder", "file.py:NAME")
    if not isinstance(found, Builder):
        source, _, own_name = name.rpartition(":")
        raise InvalidInput(
            f"network.builder = {name!r}: {source} has no builder {own_name}: decorate the function with "
            "@fedfeast.elastic(...)."
        )
    return found
