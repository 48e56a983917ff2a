import logging
from typing import Any

import numpy as np
import private_clients
import pytest

from fedfeast.planning.outline import outline
from fedfeast.planning.privacy_noise import PrivacyNoise, measure_noise, warn_of_noise
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_privacy, builder_settings

PRIVATE = {"privacy.clip_norm": 1.0, "privacy.noise_multiplier": 2.0}


def noise_of(**settings: Any) -> PrivacyNoise:
    recipe = load_recipe("digits", {**PRIVATE, **{key.replace("__", "."): value for key, value in settings.items()}})
    built = outline(recipe)
    noise = measure_noise(built, np.ones(recipe.population.num_clients, dtype=np.int64))
    assert noise is not None
    return noise


def test_the_noise_is_that_of_equal_slices_by_hand() -> None:
    noise = noise_of(population__least_macs=5e6)  # everyone affords the largest
    network = outline(load_recipe("digits")).method.network.layout.num_parameters
    assert noise.positions <= network
    assert noise.over_update == pytest.approx(2 * 2 * (noise.positions / 10) ** 0.5)
    assert noise.needed_per_round == pytest.approx(10 * noise.over_update**2, abs=1)
    assert noise.needed_clients == pytest.approx(40 * noise.over_update**2, abs=1)


def test_more_clients_and_less_noise_lower_it() -> None:
    first = noise_of(population__least_macs=5e6).over_update
    assert noise_of(population__least_macs=5e6, training__clients_per_round=40).over_update == pytest.approx(first / 2)
    assert noise_of(population__least_macs=5e6, privacy__noise_multiplier=1.0).over_update == pytest.approx(first / 2)


def test_unequal_weights_raise_it_and_equal_ones_do_not() -> None:
    sizes = np.array([100, *[1] * 39])
    for weigh, is_raised in (("method", True), ("alike", False)):
        built = outline(load_recipe("digits", {**PRIVATE, "aggregation.weigh": weigh}))
        unequal, equal = measure_noise(built, sizes), measure_noise(built, np.ones_like(sizes))
        assert unequal is not None
        assert equal is not None
        assert (unequal.over_update > equal.over_update) is is_raised
    assert measure_noise(outline(load_recipe("digits")), sizes) is None


def test_drowned_updates_are_said_with_the_population_they_need(caplog: pytest.LogCaptureFixture) -> None:
    privacy = build_privacy(load_recipe("digits", PRIVATE))
    with caplog.at_level(logging.WARNING, "fedfeast"):
        warn_of_noise(PrivacyNoise(0.9, 500, 2000, 10_000), privacy)
        assert caplog.messages == []
        warn_of_noise(PrivacyNoise(20.0, 54_000, 10, 40), privacy)
    assert len(caplog.messages) == 1
    for part in ("20 times the update", "about 4,000 clients a round out of 16,000", "up to 54,000 positions"):
        assert part in caplog.messages[0]


def test_the_example_of_the_page_is_heard_above_its_noise() -> None:
    settings = {"variants.cache": "members", **private_clients.SETTINGS, **builder_settings(private_clients.small)}
    recipe = load_recipe("digits", settings)
    noise = measure_noise(outline(recipe), np.full(recipe.population.num_clients, 2))
    assert noise is not None
    assert noise.over_update < 1
