"""What a node tells of its own examples, and to whom it tells nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from natural_data import natural_recipe

from fedfeast.flower import client
from fedfeast.flower.evaluation.answering import pack_values, slice_of, take_statistics
from fedfeast.flower.messages import Unreadable, from_json, to_json
from fedfeast.flower.node import read_node
from fedfeast.flower.terms import Terms
from fedfeast.flower.wire import from_array, pack_slice
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe
from fedfeast.runs.assembly import split_data

DATA = """
import numpy as np
def moves():
    return np.arange(160.0).reshape(10, 2, 8), np.arange(10) % 3
"""


def asked(recipe: Recipe, config: dict[str, Any], value: float = 0.1, **order: Any) -> Message:
    """Return what a node answers to an evaluation of the two smallest networks, all weights of one value."""
    method, _ = build_method(recipe)
    terms = Terms.of(recipe, method, split_data(recipe).normalisation, ())
    slices = slice_of(method.network, method.operating_points()[:2])
    weights = torch.full((slices.payload,), value, dtype=torch.float64)
    content: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "terms": to_json(terms.to_json()),
        "order": to_json({"round_index": 0, "what": "statistics", "points": [0, 1], "with_statistics": False, **order}),
        "weights": pack_slice(slices, weights, torch.float64),
    }
    message = Message(RecordDict(content), 5, "evaluate")
    return client.evaluate(message, Context(1, 5, config, RecordDict(), {}))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "own.py").write_text(DATA)
    named = f"{tmp_path}/moves_net.py:net"
    return {"name": "kitchen", "budget-macs": 300, "data": f"{tmp_path / 'own.py'}:moves", "builder": named}


def test_a_node_keeps_back_a_share_and_tells_sums_alone(tmp_path: Path, config: dict[str, Any]) -> None:
    recipe = natural_recipe(tmp_path, "moves", "evaluation.by=clients", "evaluation.client_share=0.3")
    terms = Terms.of(recipe, build_method(recipe)[0], split_data(recipe).normalisation, ())
    node, again = (read_node(terms, config) for _ in range(2))
    assert (len(node.examples), len(node.kept_back)) == (7, 3)
    assert torch.equal(node.kept_back.inputs, again.kept_back.inputs)
    firsts = torch.cat((node.examples.inputs, node.kept_back.inputs))[:, 0, 0]
    assert sorted(firsts.tolist()) == list(np.arange(10.0) * 16)
    other = read_node(terms, {**config, "name": "garage"})
    assert not torch.equal(node.kept_back.inputs, other.kept_back.inputs)
    reply = asked(recipe, config)
    assert from_json(reply.content, "report") == {"examples": 7}
    sums = from_array(reply.content.array_records["sums"]["values"])
    assert sums.shape == (2 * 2 + 2 * 4,)  # means and mean squares of two and four channels


def test_what_a_node_does_not_answer(tmp_path: Path, config: dict[str, Any]) -> None:
    by_clients, by_server = (natural_recipe(tmp_path, "moves", f"evaluation.by={who}") for who in ("clients", "server"))

    def problem(recipe: Recipe, changed: dict[str, Any] | None = None, value: float = 0.1, **order: Any) -> str:
        reply = asked(recipe, {**config, **(changed or {})}, value, **order)
        assert not reply.content.array_records
        return str(from_json(reply.content, "report")["problem"])

    assert "its recipe says that it evaluates by itself" in problem(by_server)
    assert "beyond the budget of 150 MACs" in problem(by_clients, {"budget-macs": 150})
    assert "names network 7 of 3" in problem(by_clients, points=[0, 7])
    assert "weights are not finite" in problem(by_clients, value=float("nan"))
    assert "its order has what = 'everything'" in problem(by_clients, what="everything")
    assert "408 bytes of weights where 216 were sent" in problem(by_clients, points=[0])
    assert "no record 'statistics'" in problem(by_clients, what="totals", with_statistics=True)
    assert "without privacy, and it insists" in problem(by_clients, {"least-noise-multiplier": 1.0})


def test_a_single_example_is_not_kept_back(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "own.py").write_text(DATA.replace("160", "16").replace("10", "1"))
    recipe = natural_recipe(tmp_path, "moves", "evaluation.by=clients")
    terms = Terms.of(recipe, build_method(recipe)[0], split_data(recipe).normalisation, ())
    node = read_node(terms, config)
    assert (len(node.examples), len(node.kept_back)) == (1, 0)
    assert from_json(asked(recipe, config).content, "report") == {"examples": 0}  # one has no batch statistics


def test_statistics_that_are_too_short_are_no_statistics() -> None:
    values = from_array(pack_values([torch.arange(4.0), torch.arange(2.0)])["values"])
    found, rest = take_statistics({"norm": 2}, values)
    assert [part.tolist() for part in found["norm"]] == [[0, 1], [2, 3]]
    assert rest.tolist() == [0, 1]
    with pytest.raises(Unreadable, match="too short"):
        take_statistics({"norm": 4}, values)
    assert from_array(pack_values([])["values"]).shape == (0,)
