"""What fedfeast.check would refuse in a network of the user's own, said before its first round."""

import logging

from fedfeast.data import normalise
from fedfeast.errors import InvalidInput
from fedfeast.networks.built import BuiltNetwork, check
from fedfeast.runs.assembly import Federation

TRIED = 4  # examples


def warn_of_misfit(federation: Federation) -> None:
    """Try the network on some of the clients' examples; a refusal is a warning here, and training goes on."""
    network, recipe = federation.method.network, federation.recipe
    if not isinstance(network, BuiltNetwork) or ":" not in str(recipe.network.builder):
        return
    examples = federation.examples.pool.inputs[:TRIED].cpu()
    if not len(examples):
        return  # a fleet's clients have theirs
    try:
        check(network.builder, normalise(examples, federation.preparation.normalisation), network.known, quiet=True)
    except InvalidInput as refusal:
        logging.getLogger("fedfeast").warning("training goes on, but fedfeast.check would refuse: %s", refusal)
