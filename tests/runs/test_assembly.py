from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.engines import EagerEngine
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Evaluator
from fedfeast.federation import RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import Federation, assemble


def build(**settings: Any) -> Federation:
    return assemble(load_recipe("digits", {key.replace("__", "."): value for key, value in settings.items()}))


def of_the_server(federation: Federation) -> Evaluator:
    assert isinstance(federation.validation, Evaluator)
    return federation.validation


def test_the_digits_federation() -> None:
    federation = build()
    assert len(federation.clients) == len(federation.participants) == 40
    assert len(federation.method.operating_points()) >= 6
    sizes = [client.num_examples for client in federation.clients]
    assert sum(sizes) == len(federation.examples.pool)
    assert min(sizes) >= 1
    held = len(of_the_server(federation).test) + len(of_the_server(federation).calibration)
    assert sum(sizes) + held + len(federation.test.test) == 1797
    assert np.corrcoef(federation.population.budgets_macs.clip(max=5e6), sizes)[0, 1] > 0.9


def test_server_held_and_test_examples_are_disjoint_from_the_clients() -> None:
    federation = build()
    sets = [
        federation.examples.pool,
        of_the_server(federation).test,
        of_the_server(federation).calibration,
        federation.test.test,
    ]
    keys = [
        {(image.numpy().tobytes(), int(label)) for image, label in zip(e.inputs, e.labels, strict=True)} for e in sets
    ]
    for position, one in enumerate(keys):
        for other in keys[position + 1 :]:
            assert one.isdisjoint(other)


def test_seeds_change_the_population_and_the_partition() -> None:
    one, same, other = build(), build(), build(seed=1)
    assert np.array_equal(one.partition.shards.order, same.partition.shards.order)
    assert not np.array_equal(one.partition.shards.order, other.partition.shards.order)
    assert not np.array_equal(one.population.budgets_macs, other.population.budgets_macs)


def test_budgets_from_a_fleets_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("name,budget_macs\nphone,2e5\nlaptop,6e6\n")
    federation = build(population__source="file", population__file=str(path))
    assert [client.name for client in federation.clients] == ["phone", "laptop"]
    assert federation.clients[1].num_examples > federation.clients[0].num_examples


def test_a_budget_below_the_smallest_variant_is_an_error_by_default() -> None:
    with pytest.raises(InvalidInput, match=r"budget of 100000 MACs, below the smallest network's 128320"):
        build(population__least_macs=1e5)


def test_or_its_client_is_excluded_when_asked() -> None:
    federation = build(population__least_macs=1e5, population__below_smallest="exclude")
    budgets = federation.population.budgets_macs
    assert federation.participants == tuple(np.flatnonzero(budgets >= 128_320).tolist())
    assert 0 < len(federation.participants) < 40
    assert federation.client_table()["participates"].count(0) == 40 - len(federation.participants)


def test_nobody_left_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="no client can afford"):
        build(population__least_macs=1e5, population__greatest_macs=1.1e5, population__below_smallest="exclude")


def test_clients_know_the_classes_they_hold() -> None:
    federation = build()
    for client in federation.clients:
        labels = federation.examples.of_client(client.index).labels.tolist()
        assert client.held_classes == tuple(sorted(set(labels)))
    assert len({client.held_classes for client in federation.clients}) > 1


@pytest.mark.parametrize(("name", "decays"), [("heterofl", True), ("fiarse", False)])
def test_a_method_may_have_an_optimiser_of_its_own(name: str, decays: bool) -> None:
    no_gradient_to_speak_of = {"training__clip_norm": 1e-12, "training__weight_decay": 0.5}
    federation = build(method__name=name, **no_gradient_to_speak_of)
    method, flat = federation.method, federation.initial_weights()
    cohort = [federation.clients[federation.participants[0]]]
    planned, _ = method.plan_round(method.initial_state(), flat, cohort, 0, named_generator(0))
    after = federation.engine().run_round(RoundOrder(flat, planned, 0, 0.1)).flat
    index = planned[0].slice_map.index().long()
    shrunk = float(after[index].norm() / flat[index].norm())
    assert shrunk < 0.96 if decays else shrunk == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"population__num_clients": 2000},
            "2000 clients with at least 1 examples each need 2000, but there are",
        ),
        ({"data__validation_examples": 1500}, "do not fit"),
        ({"variants__cache": "cifar100-56"}, "not in the network's space"),
        ({"variants__cache": "digits-9"}, "neither a file nor one of"),
        (
            {"population__source": "zipf", "population__least_macs": 2e7},
            "range from 20000000.0 to 12000000.0",
        ),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(**settings)


def test_missing_data_files_are_named() -> None:
    with pytest.raises(InvalidInput, match="files of cifar100 are not in /nowhere: run fedfeast data fetch"):
        assemble(load_recipe("cifar100-paper", {"data.folder": "/nowhere"}))


def test_a_servers_own_examples_are_taken_instead_of_training_ones(tmp_path: Path) -> None:
    counts = {"train": 200, "test": 20, "server": 60}
    labels = {split: np.arange(count, dtype=np.int64) % 10 for split, count in counts.items()}
    levels = {"train": 10, "test": 20, "server": 30}
    blocks = [(split, 0, np.full((len(each), 1, 8, 8), levels[split], np.uint8)) for split, each in labels.items()]
    decoded = Decoded(tuple("abcdefghij"), 1, 8, labels, blocks)
    write_prepared(tmp_path / "mine", decoded, {"normalisation": None, "source": {}})
    own = {"data__name": "mine", "data__folder": str(tmp_path), "data__calibration_examples": 20}
    federation = build(**own, data__validation_examples=40)
    assert sum(client.num_examples for client in federation.clients) == 200
    assert np.bincount(of_the_server(federation).test.labels.numpy()).tolist() == [4] * 10
    assert np.bincount(of_the_server(federation).calibration.labels.numpy()).tolist() == [2] * 10
    assert bool((of_the_server(federation).test.inputs == 30).all())
    assert bool((federation.examples.pool.inputs == 10).all())
    with pytest.raises(InvalidInput, match="do not fit 60 examples of the server"):
        build(**own, data__validation_examples=41)


def test_the_engine_is_the_devices_own() -> None:
    assert isinstance(build().engine(), EagerEngine)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"engine__name": "graphs"},
            "engine.name = 'graphs' needs a CUDA device, and training is on the CPU: set engine.name=eager.",
        ),
        (
            {"engine__precision": "bfloat16"},
            "engine.precision = 'bfloat16' is known to the graph engine alone: set engine.precision=float32.",
        ),
        (
            {"engine__name": "eager", "engine__precision": "bfloat16"},
            "engine.precision = 'bfloat16' is known to the graph engine alone: set engine.precision=float32.",
        ),
    ],
)
def test_engines_refuse_what_they_cannot_do(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        build(**settings).engine()
    assert str(refusal.value) == message


def test_an_engine_that_cannot_run_here_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"engine.name = 'graphs' needs a CUDA device"):
        Run.create("digits", tmp_path / "run", {"engine.name": "graphs"})
    with pytest.raises(InvalidInput, match=r"engine.precision = 'bfloat16' is known to the graph engine alone"):
        Run.create("digits", tmp_path / "run", {"engine.precision": "bfloat16"})
    assert not (tmp_path / "run").exists()
