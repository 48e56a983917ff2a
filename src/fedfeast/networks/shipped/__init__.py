"""Builders that ship with the package, each one readable file, and a user's own by name."""

from difflib import get_close_matches

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Builder
from fedfeast.networks.shipped.adapters import adapters
from fedfeast.networks.shipped.conv1d import conv1d
from fedfeast.networks.shipped.nested_transformer import nested_transformer
from fedfeast.own_code import find_own

BUILDERS: dict[str, Builder] = {one.name: one for one in (nested_transformer, conv1d, adapters)}


def find_builder(name: str) -> Builder:
    """Return a builder of the package, or a user's own named ``file.py:NAME`` or ``module:NAME``."""
    if name in BUILDERS:
        return BUILDERS[name]
    source, colon, own_name = name.rpartition(":")
    if not colon:
        close = get_close_matches(name, BUILDERS, n=3)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise InvalidInput(
            f"network.builder = {name!r} is unknown{hint}: choose one of {', '.join(BUILDERS)}, "
            "or name your own as file.py:NAME."
        )
    found = find_own(name, "network.builder")
    if not isinstance(found, Builder):
        raise InvalidInput(
            f"network.builder = {name!r}: {source} has no builder {own_name}: decorate the function with "
            "@fedfeast.elastic(...)."
        )
    return found
