"""Clients that train alone: who is chosen, that nothing is merged, and that what is done is kept."""

import json
from pathlib import Path

import pytest
from tiny import TINY

from fedfeast.errors import InvalidInput
from fedfeast.federation import Client, RoundOrder, learning_rate
from fedfeast.methods import FedAvg
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble
from fedfeast.studies.alone import FILE, ClientAlone, read_alone, spread_clients, train_alone

SHORT = {**TINY, "training.rounds": 2, "training.clients_per_round": 2, "evaluation.every_rounds": 2}


def test_clients_are_spread_over_the_budgets() -> None:
    clients = tuple(Client(index, "", float(100 - index), 1) for index in range(10))
    assert spread_clients(clients, 2) == [7, 2]
    assert spread_clients(clients, 5) == [8, 6, 4, 2, 0]
    assert spread_clients(clients, 20) == list(range(9, -1, -1))


def test_a_client_alone_is_a_federation_of_one(tmp_path: Path) -> None:
    recipe = load_recipe("digits", SHORT)
    told: list[ClientAlone] = []
    done = train_alone(recipe, tmp_path / "alone", lambda client, total: told.append(client))
    assert done == tuple(told) == read_alone(tmp_path / "alone")[0]
    first = done[0]
    built = assemble(load_recipe("digits", {**SHORT, "method.name": "fedavg", "method.max_macs": first.budget_macs}))
    assert isinstance(built.method, FedAvg)
    assert built.method.variant.macs == first.macs
    flat, engine, training = built.initial_weights(), built.engine(), recipe.training
    for round_index in range(2):
        assigned, _ = built.method.plan_round({}, flat, [built.clients[first.client]], 0, None)  # type: ignore[arg-type]
        rate = learning_rate(training.learning_rate, training.schedule, round_index, training.rounds)
        flat = engine.run_round(RoundOrder(flat, assigned, round_index, rate)).flat
    (point,) = built.test.curve(built.method, flat, built.method.operating_points()).points
    assert first.value == point.value


def test_what_is_done_is_not_trained_again(tmp_path: Path) -> None:
    recipe = load_recipe("digits", SHORT)
    done = train_alone(recipe, tmp_path)
    file = tmp_path / FILE
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "clients": content["clients"][:1]}))
    told: list[int] = []
    assert train_alone(recipe, tmp_path, lambda client, total: told.append(client.client)) == done
    assert told == [done[1].client]
    train_alone(recipe, tmp_path, lambda client, total: told.append(client.client))
    assert len(told) == 1
    file.write_text("{")
    with pytest.raises(InvalidInput, match=r"alone\.json is damaged: delete it"):
        train_alone(recipe, tmp_path)
