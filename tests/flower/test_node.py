"""What a node says of itself and how it trains."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from natural_data import TOKENS_NET, natural_recipe

from fedfeast.data import Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.federation import Client
from fedfeast.flower import client
from fedfeast.flower.messages import from_json, to_json
from fedfeast.flower.node import read_node, require_consent
from fedfeast.flower.terms import Terms
from fedfeast.flower.wire import pack_assignment, pack_slice
from fedfeast.own_code import remember, trust
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import parse_recipe
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


def test_a_node_runs_its_own_builder_if_it_is_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]
) -> None:
    server, kitchen = tmp_path / "server", tmp_path / "kitchen"
    for folder in (server, kitchen):
        folder.mkdir()
        (folder / "score.py").write_text("def small(member):\n    return -member.values['width']\n")
    recipe = natural_recipe(server, "letters", "data.server_clients=0.25")
    monkeypatch.chdir(server)
    named = {"network.builder": "letters_net.py:net", "variants.score": "score.py:small", "variants.cache": "members"}
    recipe = parse_recipe(recipe.to_toml(), "letters", named)
    terms = Terms.of(recipe, build_method(recipe)[0], None, tuple("abcde"))
    assert terms.files["variants.cache"].splitlines() == ["macs,params,width", "108,45,2"]
    assert "score.py" not in terms.recipe
    monkeypatch.chdir(kitchen)
    new_process()
    (tmp_path / "data.py").write_text("import numpy as np\ndef lines():\n    return (np.zeros((5, 6), int),) * 2\n")
    config: dict[str, Any] = {"name": "kitchen", "budget-macs": 300, "data": f"{tmp_path / 'data.py'}:lines"}
    content, allowed = RecordDict({"terms": to_json(terms.to_json())}), {**config, "builder": "letters_net.py:net"}
    assert 'add builder="letters_net.py:net" to --node-config' in str(ask(content, config)["problem"])
    assert str(ask(content, allowed)["problem"]) == (
        "the server's network.builder = 'letters_net.py:net' is not installed here (builder names the file "
        "letters_net.py, which is no Python file here: put it there, seen from the current folder, or give its "
        "path): put the server's file there."
    )
    (kitchen / "letters_net.py").write_text(TOKENS_NET + "# mine\n")
    assert "its builder letters_net.py:net is another one than the server's" in str(ask(content, allowed)["problem"])
    new_process()
    (kitchen / "letters_net.py").write_text(TOKENS_NET)
    (kitchen / "score.py").unlink()
    assert ask(content, allowed)["space"] == terms.space


def test_a_node_with_its_own_data_needs_no_loader_of_the_servers(tmp_path: Path) -> None:
    terms = terms_of()
    content = {**terms.to_json(), "recipe": terms.recipe.replace('name = "digits"\n', 'name = "gone.py:images"\n')}
    assert content["recipe"].count("gone.py:images") == 2  # of the recipe, and of the data
    data = tmp_path / "mine.py"
    data.write_text("import numpy as np\ndef shots():\n    return np.zeros((5, 1, 8, 8), np.uint8), np.full(5, 7)\n")
    config: dict[str, Any] = {"name": "kitchen", "budget-macs": 3e6, "data": f"{data}:shots"}
    assert ask(RecordDict({"terms": to_json(content)}), config)["space"] == terms.space


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


def consents(settings: dict[str, Any], config: dict[str, Any]) -> None:
    recipe = load_recipe("digits", settings)
    require_consent(recipe, build_method(recipe)[0], config)


PRIVATE = {"privacy.clip_norm": 1.0, "privacy.noise_multiplier": 1.5}
CENTRAL = {**PRIVATE, "privacy.mechanism": "central", "training.cohort": "poisson"}


def test_a_node_may_insist_on_its_own_recipe(tmp_path: Path) -> None:
    consents({}, {"recipe": "digits"})
    with pytest.raises(InvalidInput, match="the server's network is not that of its own recipe digits"):
        consents({"method.name": "heterofl"}, {"recipe": "digits"})
    own = tmp_path / "own.toml"
    own.write_text(load_recipe("digits", PRIVATE).to_toml())
    consents(PRIVATE, {"recipe": str(own)})
    with pytest.raises(InvalidInput, match="it would add the noise itself"):
        consents(CENTRAL, {"recipe": str(own)})
    trusting = tmp_path / "trusting.toml"
    trusting.write_text(load_recipe("digits", CENTRAL).to_toml())
    consents(CENTRAL, {"recipe": str(trusting)})
    with pytest.raises(InvalidInput, match=r"without privacy, and it insists on a privacy.clip_norm of at most 1"):
        consents({}, {"recipe": str(own)})


@pytest.mark.parametrize(
    ("settings", "config", "complaint"),
    [
        (PRIVATE, {}, None),
        (PRIVATE, {"most-clip-norm": 1.0, "least-noise-multiplier": 1.5}, None),
        (
            {},
            {"least-noise-multiplier": 1},
            "without privacy, and it insists on a privacy.noise_multiplier of at least 1",
        ),
        (
            PRIVATE,
            {"least-noise-multiplier": 2},
            "noise_multiplier = 1.5, and it insists on a privacy.noise_multiplier",
        ),
        (PRIVATE, {"most-clip-norm": 0.5}, "clip_norm = 1 and .* it insists on a privacy.clip_norm of at most 0.5"),
        (CENTRAL, {}, None),
        (
            CENTRAL,
            {"least-noise-multiplier": 1},
            "it would add the noise itself, and it insists on a privacy.noise_mul",
        ),
        (CENTRAL, {"most-clip-norm": 1}, "it would add the noise itself, and it insists on a privacy.clip_norm"),
        (PRIVATE, {"most-clip-norm": "much"}, "its most-clip-norm is 'much': give a positive number"),
        (PRIVATE, {"least-noise-multiplier": float("nan")}, "its least-noise-multiplier is nan"),
    ],
)
def test_a_node_sets_floors_of_privacy(settings: dict[str, Any], config: dict[str, Any], complaint: str | None) -> None:
    if complaint is None:
        consents(settings, config)
    else:
        with pytest.raises(InvalidInput, match=complaint):
            consents(settings, config)


def ask(content: RecordDict, config: dict[str, str | int | float]) -> dict[str, object]:
    message = Message(content, 5, "query")
    answer: dict[str, object] = from_json(
        client.introduce(message, Context(1, 5, config, RecordDict(), {})).content, "introduction"
    )
    return answer


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


def order_of(flat_value: float, *settings: str) -> RecordDict:
    """What a server sends to the first client of the digits: every weight of one value."""
    recipe = load_recipe("digits", ["population.num_clients=3", *settings])
    method, _ = build_method(recipe)
    flat = torch.full((method.network.layout.size,), flat_value)
    (assignment,), _ = method.plan_round(
        {}, torch.zeros_like(flat), [Client(0, "client-000", 2e6, 5)], 0, named_generator(0)
    )
    part, arrays = pack_assignment(assignment)
    return RecordDict(
        {
            "terms": to_json(terms_of(*settings).to_json()),
            "order": to_json({"round_index": 0, "learning_rate": 0.1, "assignment": part}),
            "assignment": arrays,
            "weights": pack_slice(assignment.slice_map, assignment.slice_map.gather(flat), torch.float32),
        }
    )


PRIVATELY = ("privacy.clip_norm=1", "privacy.noise_multiplier=1")


@pytest.mark.parametrize("settings", [(), PRIVATELY])
@pytest.mark.parametrize(
    ("value", "problem"), [(float("nan"), "received weights are not finite"), (3e37, "training diverged")]
)
def test_what_is_not_finite_is_neither_trained_nor_sent(settings: tuple[str, ...], value: float, problem: str) -> None:
    message = Message(order_of(value, *settings), 5, "train")
    reply = client.train(message, Context(1, 5, {"partition-id": 0}, RecordDict(), {}))
    assert problem in from_json(reply.content, "report")["problem"]
    assert not reply.content.array_records


def test_a_greedy_server_gets_nothing_from_a_node_that_insists() -> None:
    message = Message(order_of(0.01), 5, "train")
    context = Context(1, 5, {"partition-id": 0, "least-noise-multiplier": 1.0}, RecordDict(), {})
    reply = client.train(message, context)
    assert "without privacy, and it insists" in from_json(reply.content, "report")["problem"]
    assert not reply.content.array_records
