"""Evaluation by simulated clients: sums over what each keeps back, for the networks it affords."""

from pathlib import Path

import pytest
import torch
from natural_data import natural_recipe

from fedfeast.data import Examples
from fedfeast.evaluation import ClientEvaluator, EvaluatingClient, Evaluator, Held
from fedfeast.evaluation.by_clients import MOST_CALIBRATION, norm_layers
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.runs.assembly import Federation, assemble


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return assemble(natural_recipe(tmp_path, "moves", "evaluation.by=clients", "evaluation.client_share=0.2"))


def clients_of(federation: Federation, *budgets: float) -> ClientEvaluator:
    """Return the federation's evaluation with other budgets."""
    plain = federation.validation
    assert isinstance(plain, ClientEvaluator)
    changed = [
        EvaluatingClient(one.name, budget, one.training, one.kept_back)
        for one, budget in zip(plain.clients, budgets, strict=True)
    ]
    return ClientEvaluator(plain.task, plain.scored_by, plain.blank, changed, plain.normalisation)


def test_clients_of_equal_weight_are_one_set_of_examples(federation: Federation) -> None:
    evaluator = clients_of(federation, 1e9, 1e9, 1e9, 1e9)
    points, flat = federation.method.operating_points(), federation.initial_weights()
    measured = evaluator.measure(federation.method, flat, points)
    kept = [client.kept_back.examples() for client in evaluator.clients]
    pooled = Examples(torch.cat([one.inputs for one in kept]), torch.cat([one.labels for one in kept]))
    server = Evaluator(federation.examples.pool, pooled, evaluator.normalisation)
    for place, point in enumerate(points):
        deployed = federation.method.deploy(flat, point)
        totals = server.totals(deployed, measured.statistics[point.name]).sum(dim=0)
        assert torch.equal(measured.totals[place].sum(dim=0), totals)
        mean, variance = measured.statistics[point.name]["1"]
        by_server_mean, _ = server.recalibrate(deployed)["1"]
        torch.testing.assert_close(mean, by_server_mean)  # over the same training examples
        assert bool((variance > 0).all())
    assert measured.clients == ("anna", "bert", "carl", "dora")
    assert measured.notes == {}


def test_a_client_evaluates_what_it_affords_and_what_nobody_affords_is_said(federation: Federation) -> None:
    evaluator = clients_of(federation, 102, 204, 50, 203.9)
    points, flat, told = federation.method.operating_points(), federation.initial_weights(), list[str]()
    measured = evaluator.measure(federation.method, flat, points, lambda point: told.append(point.name))
    able = [[True, True, False, True], [False, True, False, False], [False] * 4]
    assert (measured.totals[:, :, 1] > 0).tolist() == able
    assert [point.name for point in measured.curve.points] == ["102", "204"]
    assert measured.curve.notes == measured.notes == {"evaluation": {"not_evaluated": ["408"]}}
    assert told == ["102", "204", "408"]
    assert not evaluator.asks_nobody
    assert evaluator.better(0.5, 0.4)


def test_one_example_is_no_statistics(federation: Federation) -> None:
    plain = federation.validation
    assert isinstance(plain, ClientEvaluator)
    alone = plain.clients[0]
    single = EvaluatingClient("alone", 1e9, alone.training.evenly(1), alone.kept_back)
    evaluator = ClientEvaluator(plain.task, None, plain.blank, [single], plain.normalisation)
    measured = evaluator.measure(federation.method, federation.initial_weights(), federation.method.operating_points())
    assert measured.curve.points == ()
    assert measured.statistics == {}


def test_networks_without_batch_norm_need_no_statistics(tmp_path: Path) -> None:
    recipe = natural_recipe(tmp_path, "letters", "evaluation.by=clients")
    federation, method = assemble(recipe), build_method(recipe)[0]
    flat = method.network.initial_weights(named_generator(0))
    assert isinstance(federation.validation, ClientEvaluator)
    deployed = method.deploy(flat, method.operating_points()[0])
    assert norm_layers(deployed, federation.validation.blank) == {}
    assert len(federation.validation.measure(method, flat.double(), method.operating_points()).curve.points) == 3


def test_some_of_many_examples_are_taken_evenly() -> None:
    examples = Examples(torch.arange(1000.0)[:, None], torch.arange(1000))
    taken = Held.all_of(examples).evenly(MOST_CALIBRATION).examples()
    assert taken.labels.tolist() == list(range(0, 1000, 4))
    assert len(Held.all_of(examples).evenly(2000)) == 1000
