"""Local training alone: what clients come to without a federation, each with its own model on the common test set."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.federation import Client, RoundOrder, learning_rate
from fedfeast.methods.controls.local import LocalTraining
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe
from fedfeast.recipes.building import build_parts, build_sgd
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.whole_files import write_json

FILE = "alone.json"


@dataclass(frozen=True)
class ClientAlone:
    """What one client came to."""

    client: int
    budget_macs: float
    num_examples: int
    macs: int | None  # of its network; none where it affords no network, and trains nothing
    value: float  # of the scoring metric on the test set; without a network that of none


OnClient = Callable[[ClientAlone, int], None]  # a client is done, of so many


def train_alone(
    recipe: Recipe, folder: Path, on_client: OnClient = lambda client, total: None
) -> tuple[ClientAlone, ...]:
    """Train a cohort of clients, each for all rounds by itself; what the folder has already is not trained again."""
    # Choice: as many clients as a round asks, spread over the budgets, each in every round; the last round's weights
    # (docs/decisions/016): together they cost what a federated run of these networks does.
    done, wanted = read_alone(folder)
    if wanted is not None and len(done) == wanted:
        return done
    federation = replace(assemble(recipe), method=LocalTraining.build(build_parts(recipe)))
    chosen = spread_clients(federation.clients, recipe.training.clients_per_round)
    for index in chosen[len(done) :]:
        done = (*done, _train(federation, federation.clients[index]))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"wanted": len(chosen), "clients": [asdict(one) for one in done]})
        on_client(done[-1], len(chosen))
    return done


def read_alone(folder: Path) -> tuple[tuple[ClientAlone, ...], int | None]:
    """Return the clients that a folder has, and how many it is to have; a damaged file is refused."""
    file = folder / FILE
    if not file.is_file():
        return (), None
    try:
        content = json.loads(file.read_text())
        return tuple(ClientAlone(**row) for row in content["clients"]), int(content["wanted"])
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"{file} is damaged: delete it, and the study trains these clients anew.") from error


def spread_clients(clients: tuple[Client, ...], number: int) -> list[int]:
    """Return so many clients, at equal distances in the order of their budgets; all where they are fewer."""
    ordered = sorted(clients, key=lambda client: (client.budget_macs, client.index))
    if number >= len(ordered):
        return [client.index for client in ordered]
    places = ((np.arange(number) + 0.5) * len(ordered) / number).astype(int)
    return [ordered[place].index for place in places]


def _train(federation: Federation, client: Client) -> ClientAlone:
    """Train one client in rounds of its own and test its network."""
    method, training = federation.method, federation.recipe.training
    assert isinstance(method, LocalTraining)
    point = method.point_of(client.budget_macs)
    flat, engine, sgd = federation.initial_weights(), federation.engine(), build_sgd(federation.recipe, method)
    if point is not None and client.num_examples:
        assigned, _ = method.plan_round({}, flat, [client], 0, named_generator(0))
        for round_index in range(training.rounds):
            rate = learning_rate(
                sgd.learning_rate, training.schedule, round_index, training.rounds, training.warmup_rounds
            )
            flat = engine.run_round(RoundOrder(flat, assigned, round_index, rate)).flat
    tested = method.operating_points()[0] if point is None else point
    curve = federation.test.curve(method, flat, [tested])
    value = curve.unserved if point is None else curve.points[0].value
    facts = (client.index, client.budget_macs, client.num_examples)
    return ClientAlone(*facts, None if point is None else point.macs, value)
