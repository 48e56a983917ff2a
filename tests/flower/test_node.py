"""What a node says of itself and how it trains."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict

from fedfeast.data import Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.flower import client
from fedfeast.flower.node import own_space, read_node
from fedfeast.flower.terms import Terms, space_of
from fedfeast.flower.wire import from_json, to_json
from fedfeast.own_code import remember, trust
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.runs.assembly import assemble


def terms_of(*settings: str) -> Terms:
    recipe = load_recipe("digits", ["population.num_clients=3", *settings])
    return Terms.of(recipe, build_method(recipe)[0], Normalisation((0.3,), (0.2,)), ())


def test_a_partition_is_a_client_of_the_recipe() -> None:
    node = read_node(terms_of(), {"partition-id": 2, "num-partitions": 3})
    federation = assemble(load_recipe("digits", ["population.num_clients=3"]))
    assert (node.name, node.budget_macs) == ("client-002", federation.clients[2].budget_macs)
    assert node.examples.labels.tolist() == federation.examples.of_client(2).labels.tolist()
    assert node.held_classes == federation.clients[2].held_classes
    assert read_node(terms_of(), {"partition-id": 2, "name": "mine", "budget-macs": 5e6}).budget_macs == 5e6


def test_a_node_with_data_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import numpy as np\ndef shots():\n    return np.zeros((5, 1, 8, 8), np.uint8), np.full(5, 7)\n")
    node = read_node(terms_of(), {"name": "kitchen", "budget-macs": 3_000_000, "data": f"{file}:shots"})
    assert (node.name, node.budget_macs, len(node.examples), node.held_classes) == ("kitchen", 3e6, 5, (7,))


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "it has no name"),
        ({"name": "a"}, "it has no budget"),
        ({"name": "a", "budget-macs": 2e6}, "it has no data"),
        ({"name": "a", "budget-macs": -1, "data": "."}, "like no class|its budget-macs is -1|holds no images"),
        ({"partition-id": 0, "budget-macs": "much"}, "its budget-macs is 'much'"),
        ({"partition-id": 3}, "has 3 clients"),
        ({"nmae": "a"}, "unknown key 'nmae'"),
    ],
)
def test_what_is_missing_is_said(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read_node(terms_of(), config)


OWN_METHOD = """
from dataclasses import dataclass
from fedfeast.methods import FedAvg
open(__file__ + ".ran", "w").close()

@dataclass(frozen=True)
class Mine(FedAvg):
    \"\"\"FedAvg by another name.\"\"\"
"""


def test_code_that_the_terms_name_runs_where_the_node_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]
) -> None:
    server, kitchen = tmp_path / "server", tmp_path / "kitchen"
    for folder in (server, kitchen):
        folder.mkdir()
        (folder / "mine.py").write_text(OWN_METHOD)
    (kitchen / "mine.py").write_text(OWN_METHOD + "    own: bool = True\n")
    monkeypatch.chdir(server)
    terms = terms_of("method.name=mine.py:Mine")
    (server / "mine.py.ran").unlink()
    monkeypatch.chdir(kitchen)
    new_process()
    data = tmp_path / "data.py"
    data.write_text("import numpy as np\ndef shots():\n    return np.zeros((5, 1, 8, 8), np.uint8), np.full(5, 7)\n")
    config: dict[str, Any] = {"name": "kitchen", "budget-macs": 3e6, "data": f"{data}:shots"}
    content = RecordDict({"terms": to_json(terms.to_json())})
    for other in ({}, {"method": "mine.py:Other"}, {"method": str(kitchen / "mine.py:Mine")}):
        problem = str(ask(content, {**config, **other})["problem"])
        assert problem == (
            "the server's terms name code to run, method.name = 'mine.py:Mine', which this node does not allow: "
            'have that file there, read it, and add method="mine.py:Mine" to --node-config.'
        )
    trust("mine.py:Mine")  # what the node's machine itself has run is no consent
    assert "problem" in ask(content, config)
    new_process()
    assert not list(tmp_path.rglob("*.ran"))
    answer = ask(content, {**config, "method": "mine.py:Mine"})
    assert "problem" not in answer
    assert (kitchen / "mine.py.ran").exists()
    assert not (server / "mine.py.ran").exists()
    assert read_node(terms_of(), {**config, "method": "mine.py:Mine"}).name == "kitchen"  # allowed, not asked for


@pytest.mark.usefixtures("another_machine")
def test_a_simulated_client_runs_what_its_machine_trains(tmp_path: Path, new_process: Callable[[], None]) -> None:
    (tmp_path / "mine.py").write_text(OWN_METHOD)
    terms, simulated = terms_of(f"method.name={tmp_path / 'mine.py'}:Mine"), {"partition-id": 0, "num-partitions": 3}
    new_process()
    with pytest.raises(InvalidInput, match="recipe of the server names code to run"):
        read_node(terms, simulated)
    trust(f"{tmp_path / 'mine.py'}:Mine")
    remember([f"{tmp_path / 'mine.py'}:Mine"])
    new_process()
    assert read_node(terms, simulated).name == "client-000"


def test_a_partition_needs_a_population() -> None:
    with pytest.raises(InvalidInput, match="the fleet itself"):
        read_node(terms_of("population.source=fleet"), {"partition-id": 0})


def test_a_node_may_insist_on_its_own_recipe() -> None:
    assert own_space({}) is None
    assert own_space({"recipe": "digits"}) == space_of(build_method(load_recipe("digits"))[0])


def ask(content: RecordDict, config: dict[str, str | int | float]) -> dict[str, object]:
    message = Message(content, 5, "query")
    return from_json(client.introduce(message, Context(1, 5, config, RecordDict(), {})).content, "introduction")


def test_terms_that_cannot_be_read_are_a_problem_not_a_crash() -> None:
    answer = ask(RecordDict({"terms": to_json({"recipe": "digits"})}), {"name": "kitchen"})
    assert "problem" in answer
    assert (answer["name"], answer["version"]) == ("kitchen", "0.1.0")
    assert "no readable record" in str(ask(RecordDict({}), {})["problem"])


def test_an_order_that_cannot_be_read_is_a_problem_not_a_crash() -> None:
    message = Message(RecordDict({}), 5, "train")
    reply = client.train(message, Context(1, 5, {}, RecordDict(), {}))
    assert "no readable record" in from_json(reply.content, "report")["problem"]


def test_the_app_answers_both_questions() -> None:
    assert client.build_client_app() is not None
