import logging
from math import ceil
from typing import Any

import numpy as np
import private_clients
import pytest

from fedfeast.federation import CentralPrivacy, Client, expected_holders, spent_centrally
from fedfeast.planning.outline import outline
from fedfeast.planning.privacy_noise import PrivacyNoise, measure_noise, plan_privacy, warn_of_noise
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import builder_settings

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
    with caplog.at_level(logging.WARNING, "fedfeast"):
        warn_of_noise(PrivacyNoise(0.9, 500, 2000, 10_000), 2.0)
        assert caplog.messages == []
        warn_of_noise(PrivacyNoise(20.0, 54_000, 10, 40), 2.0)
    assert len(caplog.messages) == 1
    for part in ("20 times the update", "about 4,000 clients a round out of 16,000", "up to 54,000 positions"):
        assert part in caplog.messages[0]


def test_loud_noise_is_a_number_that_is_read_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedfeast"):
        warn_of_noise(PrivacyNoise(1532.6, 546_906, 10, 40), 2.0)
    assert "is 1,533 times the update itself" in caplog.messages[0]


def test_the_example_of_the_page_is_heard_above_its_noise() -> None:
    settings = {"variants.cache": "members", **private_clients.SETTINGS, **builder_settings(private_clients.small)}
    recipe = load_recipe("digits", settings)
    noise = measure_noise(outline(recipe), np.full(recipe.population.num_clients, 2))
    assert noise is not None
    assert noise.over_update < 1


CENTRAL = {"privacy.mechanism": "central", "privacy.clip_norm": 1.0, "training.cohort": "poisson"}


@pytest.mark.parametrize("settings", [{}, {"privacy.least_holders": 6.0, "privacy.noise_multiplier": 0.5}])
def test_a_servers_noise_is_that_of_the_positions_it_divides(settings: dict[str, Any]) -> None:
    recipe = load_recipe("digits", {**CENTRAL, **settings})
    built = outline(recipe)
    method, population = built.method, built.population
    flat = method.network.initial_weights(named_generator(0, "weights"))
    clients = [Client(one, population.names[one], population.budgets_macs[one], 1) for one in built.participants]
    holders = expected_holders(method, method.initial_state(), flat, clients, 10 / len(clients), 0)
    held = holders[holders > 0].clamp(min=recipe.privacy.least_holders)
    wanted = recipe.privacy.noise_multiplier * float((1 / held**2).sum().sqrt())
    noise = measure_noise(built, np.ones(len(clients), dtype=np.int64))
    assert noise is not None
    assert noise.over_update == pytest.approx(wanted, rel=1e-6)
    assert noise.needed_per_round == ceil(10 * noise.over_update)  # it falls with the clients, not with their root
    planned = plan_privacy(built, np.ones(len(clients), dtype=np.int64))
    assert planned is not None
    privacy = CentralPrivacy(1.0, recipe.privacy.noise_multiplier)
    assert planned["epsilon"] == spent_centrally(privacy, {10 / len(clients): recipe.training.rounds})


def test_a_plan_without_a_servers_noise_has_no_such_figure() -> None:
    for settings in ({}, PRIVATE):
        assert plan_privacy(outline(load_recipe("digits", settings)), np.ones(40, dtype=np.int64)) is None


@pytest.mark.parametrize("kind", ["central", "digits"])
def test_the_examples_with_a_trusted_server_are_heard_above_their_noise(kind: str) -> None:
    settings, network = private_clients.KINDS[kind]
    recipe = load_recipe("digits", {"variants.cache": "members", **settings, **builder_settings(network)})
    planned = plan_privacy(outline(recipe), np.ones(recipe.population.num_clients, dtype=np.int64))
    assert planned is not None
    assert planned["noise_over_update"] < 1
    assert planned["epsilon"] < 2.4
