"""The tiny search space and the tiny recipe that tests share: what is shown with them costs no more than it must."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedfeast.data import Examples
from fedfeast.federation import Deployed
from fedfeast.networks import Architecture, ElasticResNet, Layout, SearchSpace
from fedfeast.randomness import named_generator
from fedfeast.variants import Variant, VariantCache, read_cache

SPACE = SearchSpace(
    stem_channels=16,
    stage_channels=(16, 24),
    depths=(0, 1),
    expansions=(0.25, 0.5),
    widths=(0.5, 1.0),
    stage_strides=(1, 2),
    image_size=8,
    image_channels=1,
    classes=10,
)
NETWORK = ElasticResNet(SPACE)
# Its slices begin and end anywhere, not in chunks of eight as those above.
TORN_SPACE = replace(SPACE, stem_channels=6, stage_channels=(6, 10), channel_divisor=2)
# A few odd channels of a few pixels, so that every scalar can be counted.
COUNTABLE_SPACE = replace(SPACE, expansions=(0.3, 0.6), image_size=4, image_channels=3, classes=3, channel_divisor=1)
CACHE_FILE = Path(__file__).with_name("tiny.csv")
CACHE = read_cache(str(CACHE_FILE), NETWORK)

# Settings that make the digits recipe tiny: four variants of the space above, and clients that train a few steps.
TINY: dict[str, Any] = {
    "network.stem_channels": SPACE.stem_channels,
    "network.stage_channels": list(SPACE.stage_channels),
    "network.stage_strides": list(SPACE.stage_strides),
    "network.depths": list(SPACE.depths),
    "network.expansions": list(SPACE.expansions),
    "network.widths": list(SPACE.widths),
    "resnet.stage_channels": [16, 16, 24, 24],
    "resnet.blocks": [1, 1, 1, 1],
    "variants.cache": str(CACHE_FILE),
    "population.least_macs": 115e3,
    "population.greatest_macs": 1.2e6,
    "population.cap_macs": 600e3,
    "data.validation_examples": 100,
    "data.calibration_examples": 60,
    "training.batch_size": 32,
    "engine.threads": 1,
}


def deployed() -> Deployed:
    """Return the whole network as it is drawn, ready to be measured."""
    flat = NETWORK.initial_weights(named_generator(0, "weights"))
    return Deployed(NETWORK, SPACE.largest, Layout.of(NETWORK.shapes(SPACE.largest)), flat, 1, 1)


def examples(count: int, name: str = "examples") -> Examples:
    """Return images of noise that the network takes."""
    generator = named_generator(0, name)
    images = torch.from_numpy(generator.integers(0, 256, (count, 1, 8, 8)).astype("uint8"))
    return Examples(images, torch.from_numpy(generator.integers(0, 4, count)))


def cache_of(network: ElasticResNet, *rows: tuple[tuple[Any, ...], ...]) -> VariantCache:
    """Return a cache of networks given by depths, expansions and width indices."""
    return VariantCache.of([Variant.of(network, Architecture(*row)) for row in rows])


def as_settings(settings: dict[str, Any]) -> list[str]:
    """Return settings as text, section.key=value."""
    return [f"{key}={value}" for key, value in settings.items()]


def as_words(settings: dict[str, Any]) -> list[str]:
    """Return settings as they stand on a command line."""
    return [word for setting in as_settings(settings) for word in ("--set", setting)]
