from pathlib import Path

import numpy as np
import pytest
from natural_data import natural_recipe
from tiny import TINY

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import ClientEvaluator
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import Federation, assemble

BY_CLIENTS = {"evaluation.by": "clients", "evaluation.client_share": 0.25}


def kept_back(federation: Federation) -> ClientEvaluator:
    assert isinstance(federation.validation, ClientEvaluator)
    return federation.validation


def test_drawn_clients_keep_back_of_their_shards_and_the_server_has_nothing() -> None:
    federation = assemble(load_recipe("digits", {**TINY, **BY_CLIENTS}))
    clients = kept_back(federation).clients
    sizes = federation.partition.shards.sizes
    assert [len(client.training) for client in clients] == sizes.tolist()
    together = [place for one in clients for held in (one.training, one.kept_back) for place in held.places.tolist()]
    assert sorted(together) == list(range(len(federation.examples.pool)))  # all are clients', each once
    for client in clients:
        number = len(client.training) + len(client.kept_back)
        assert len(client.kept_back) == (0 if number == 1 else min(number - 1, max(1, round(0.25 * number))))
    assert federation.partition.realized_shares.sum() == pytest.approx(1)
    again = kept_back(assemble(load_recipe("digits", {**TINY, **BY_CLIENTS})))
    assert np.array_equal(clients[3].kept_back.places, again.clients[3].kept_back.places)


def test_the_datas_own_clients_keep_back_of_their_own(tmp_path: Path) -> None:
    federation = assemble(natural_recipe(tmp_path, "moves", "evaluation.by=clients", "evaluation.client_share=0.2"))
    for client in kept_back(federation).clients:
        assert (len(client.training), len(client.kept_back)) == (24, 6)
        trained, kept = client.training.examples().inputs, client.kept_back.examples().inputs
        assert not any(bool((one == trained).all(dim=(1, 2)).any()) for one in kept)


def test_a_run_is_chosen_by_its_clients_and_leaves_with_their_statistics(tmp_path: Path) -> None:
    settings = {**TINY, **BY_CLIENTS, "training.rounds": 2, "evaluation.every_rounds": 1}
    run = Run.create("digits", tmp_path / "run", settings).train()
    scores = [row["validation_score"] for row in run.folder.metrics()]
    assert run.summary["validation_score"] == max(scores)
    kept = run.folder.kept_statistics.load(run.best().finished_rounds)
    evaluated = [one["name"] for one in run.summary["validation_curve"]]
    assert list(kept) == evaluated
    assert {point.name for point in run.curve.points} >= set(evaluated)
    assert Run.open(run.folder.path).evaluate() == run.curve


def test_privacy_and_counts_without_noise_do_not_go_together() -> None:
    with pytest.raises(InvalidInput, match=r"tells counts and statistics without noise, and privacy\.clip_norm = 2"):
        load_recipe("digits", {"evaluation.by": "clients", "privacy.clip_norm": 2.0})
