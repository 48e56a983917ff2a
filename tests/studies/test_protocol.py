import pytest
from guessed_protocol import GUESSED

from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.studies.protocol import departures, describe_protocol, is_of, refuse_disagreement


def test_a_name_covers_its_section() -> None:
    assert is_of("method.rule", ("method",))
    assert is_of("method", ("method",))
    assert not is_of("methods.rule", ("method",))
    assert not is_of("training.rounds", ("training.batch_size",))


def test_runs_of_one_protocol_may_differ_in_method_seed_and_engine() -> None:
    recipes = {
        "one": load_recipe("digits"),
        "other": load_recipe("digits", {"method.name": "fedavg", "seed": 3, "engine.threads": 2}),
        "third": load_recipe("digits", {"checkpoint.every_rounds": 3, "data.folder": "/elsewhere"}),
        "fourth": load_recipe("digits", {"evaluation.sizes": "none"}),  # as of a run that began before there were sizes
    }
    refuse_disagreement(recipes, ())


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("training.batch_size", 8, "training.batch_size is 16 in the one and 8 in the other"),
        ("training.rounds", 8, "training.rounds is 60 in the one and 8 in the other"),
        ("population.gamma", 0.0, "population.gamma is 1.0 in the one and 0.0 in the other"),
        ("data.validation_examples", 100, "data.validation_examples is 160 in the one and 100 in the other"),
    ],
)
def test_runs_that_disagree_are_not_compared(setting: str, value: float, sentence: str) -> None:
    recipes = {"one": load_recipe("digits"), "other": load_recipe("digits", {setting: value})}
    with pytest.raises(InvalidInput, match=sentence):
        refuse_disagreement(recipes, ())
    refuse_disagreement(recipes, (setting,))


def test_what_a_server_does_beside_merging_is_told() -> None:
    assert "server" not in describe_protocol(load_recipe("digits"), (0,))
    ahead = load_recipe("digits", ["server.lookahead=0.8", "server.average=0.99"])
    told = describe_protocol(ahead, (0,))["server"]
    assert told == "lookahead 0.8; running average 0.99, served where it validates better"
    adam = load_recipe("digits", ["server.optimiser=adam"])
    assert describe_protocol(adam, (0,))["server"] == "adam, learning rate 0.01"


def test_the_protocol_in_words() -> None:
    told = describe_protocol(load_recipe("cifar100-paper"), (0, 1))
    assert "100 clients as the authors drew them, budgets from Zipf(1.2); gamma 1, cap 600M" in told["population"]
    guessed = describe_protocol(load_recipe("cifar100-paper", GUESSED), (0,))
    assert "the paper's 100 clients; gamma 1, cap 600M MACs, alpha_eff 0.45" in guessed["population"]
    assert told["checkpoint"].startswith("the best validated one (mean over clients, each with the largest network")
    assert "4000 rounds of 10 clients, 1 local epoch, batches of 64" in told["training"]
    assert told["seeds"] == "0, 1"
    drawn = describe_protocol(load_recipe("digits", ["partition.alpha_data=0.01", "partition.alpha_eff=none"]), (0,))
    assert "40 clients, budgets from Zipf(1.2); gamma 1, cap 5M MACs, alpha_data 0.01" in drawn["population"]
    told = describe_protocol(load_recipe("cifar100-authors"), (0,))
    assert told["checkpoint"].startswith("the best validated one (mean of 5 anchors)")
    assert "divided by the authors' rule, as loaded" in told["population"]
    listed = describe_protocol(load_recipe("digits", {"partition.file": "mine.npz"}), (0,))
    assert "examples as mine.npz lists them" in listed["population"]


def test_departures_from_the_recipe_and_from_the_papers_rounds_are_told() -> None:
    assert departures(load_recipe("cifar100-paper")) == []
    changed, shortened = departures(load_recipe("cifar100-paper", {"training.rounds": 100}))
    assert "training.rounds = 100 instead of 4000" in changed
    assert "belong to 4000 rounds; here every run had 100" in shortened
    assert departures(load_recipe("digits", {"seed": 3})) == []
    assert departures(load_recipe("digits", {"method.name": "fedavg"})) == [], "an arm of its own"
    (changed,) = departures(load_recipe("digits", {"training.rounds": 3}))
    assert "training.rounds = 3 instead of 60" in changed
