"""A builder that a program holds: trained by train(network=...), and gone on with from the command line."""

import json
from pathlib import Path
from typing import Any

import own_networks
import processes
import pytest
import torch
from tiny import as_words
from torch import nn

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.networks.shipped import BUILDERS
from fedfeast.recipes.suitability import MEMBERS
from fedfeast.runs import Interrupted
from fedfeast.variants import Variant, VariantCache, write_cache

SHORT: dict[str, Any] = {
    "training.rounds": 2,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 1,
    "checkpoint.every_rounds": 1,
    "population.least_macs": 4e3,
    "population.greatest_macs": 50e3,
    "data.validation_examples": 50,
    "data.calibration_examples": 20,
    "engine.threads": 1,
}


class StopAfterOne:
    """An observer that stops training as Ctrl-C does."""

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Any) -> None:
        """Say nothing."""

    def on_round(self, row: dict[str, Any]) -> None:
        """Stop after the first round."""
        raise KeyboardInterrupt

    def on_evaluation(self, measured: int, total: int) -> None:
        """Say nothing."""


def test_the_recipes_own_sizes_give_way_to_the_builders(tmp_path: Path) -> None:
    run = fedfeast.train("digits", tmp_path / "run", SHORT, network=own_networks.cnn)
    assert run.recipe.variants.cache == MEMBERS
    assert run.recipe.network.builder == f"{Path(own_networks.__file__).resolve()}:cnn"
    assert run.recipe.network.choices == {"width": [2, 4], "hidden": [3, 6], "depth": [1, 2]}
    assert len(run.curve.points) >= 3


def test_a_list_of_the_callers_own_stays(tmp_path: Path) -> None:
    network = own_networks.built_cnn(classes=10)
    ends = [Variant.of(network, one) for one in (network.smallest, network.largest)]
    write_cache(VariantCache.of(ends), network, tmp_path / "mine.csv")
    settings = {**SHORT, "variants.cache": str(tmp_path / "mine.csv")}
    run = fedfeast.train("digits", tmp_path / "run", settings, network=own_networks.cnn)
    assert [point.macs for point in run.curve.points] == [one.macs for one in ends]


def test_a_shipped_builder_keeps_its_name_and_its_options(tmp_path: Path) -> None:
    builder = BUILDERS["nested_transformer"].with_choices(depth=[1, 2], heads=[1, 2], hidden=[4, 8])
    settings = {**SHORT, "population.least_macs": 1e4, "population.greatest_macs": 1e6, "variants.num_targets": 3}
    run = fedfeast.train("digits", tmp_path / "run", settings, network=builder.with_options(embedding=8))
    assert run.recipe.network.builder == "nested_transformer"
    assert run.recipe.network.options == {"embedding": 8}
    assert len(run.curve.points) == 3


def test_budgets_of_a_shipped_recipe_are_raised_to_reach_the_network(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = own_networks.cnn.with_choices(width=[256, 512])
    drawn = {key: value for key, value in SHORT.items() if not key.startswith("population")}
    run = fedfeast.train("digits", tmp_path / "run", {**drawn, "training.rounds": 1}, network=wide)
    assert "budgets of digits begin at 150k MACs, below this network's smallest: they now range from" in caplog.text
    budgets = run.folder.budgets_macs()
    assert run.recipe.population.least_macs == run.curve.points[0].macs <= budgets.min()
    assert budgets.max() <= run.recipe.population.greatest_macs == run.curve.points[-1].macs
    # What the caller says of budgets stands, and a recipe of the caller's own too.
    with pytest.raises(InvalidInput, match="no client can afford the smallest network, 248320 MACs"):
        fedfeast.train("digits", tmp_path / "other", SHORT, network=wide)
    with pytest.raises(InvalidInput, match="below the smallest network's"):
        fedfeast.train(fedfeast.load_recipe("digits", drawn), tmp_path / "other", network=wide)


def test_only_what_elastic_made_is_a_network(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"network is a type and no builder: decorate its function"):
        fedfeast.train("digits", tmp_path / "run", SHORT, network=nn.Linear)  # type: ignore[arg-type]


def test_a_builder_that_no_later_process_could_find_is_refused(tmp_path: Path) -> None:
    program = "from fedfeast import elastic\n@elastic(width=[2, 4])\ndef prompt(width): ..."
    names: dict[str, Any] = {}
    exec(compile(program, "<stdin>", "exec"), names)
    with pytest.raises(InvalidInput, match="network = prompt stands in no file"):
        fedfeast.train("digits", tmp_path / "run", SHORT, network=names["prompt"])

    @fedfeast.elastic(width=[2, 4])
    def inner(width: int) -> nn.Module:
        return nn.Linear(width, 2)

    with pytest.raises(InvalidInput, match="network = inner is made within a function, so that no later run"):
        fedfeast.train("digits", tmp_path / "run", SHORT, network=inner)


def test_a_new_process_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = fedfeast.train("digits", tmp_path / "whole", SHORT, network=own_networks.cnn)
    with pytest.raises(Interrupted):
        fedfeast.train("digits", tmp_path / "run", SHORT, StopAfterOne(), network=own_networks.cnn)
    # The builder was trained with here, so that the run's own recipe is enough.
    recipe = tmp_path / "run" / "recipe.toml"
    said = processes.run(["train", str(recipe), "--out", str(tmp_path / "run"), "--json"], tmp_path / "log")
    assert json.loads(said[said.index("{") :])["finished_rounds"] == 2
    assert torch.equal(fedfeast.Run.open(tmp_path / "run").best().flat, whole.best().flat)


def test_elsewhere_its_run_is_opened_when_the_user_says_so(tmp_path: Path, another_machine: None) -> None:
    file = tmp_path / "mine.py"
    file.write_text(Path(own_networks.__file__).read_text())
    setting = as_words({**SHORT, "network.builder": f"{file}:cnn", "variants.cache": MEMBERS})
    words = ["train", "digits", "--out", str(tmp_path / "run"), *setting]
    process = processes.start(words, tmp_path / "log", {"FEDFEAST_HOME": str(tmp_path / "home")})
    assert processes.ended(process) == 0, (tmp_path / "log").read_text()
    with pytest.raises(InvalidInput, match=r"names code to run, network.builder = .* was not trusted on this machine"):
        fedfeast.Run.open(tmp_path / "run")
    fedfeast.trust(f"{file}:cnn")
    assert len(fedfeast.Run.open(tmp_path / "run").curve.points) >= 3


class Averaging(nn.Module):
    """Averages over channels whose number changes: shapes nest, outputs do not."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(1, width, 3, 2, 1), nn.Linear(16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (batch, classes)."""
        logits: torch.Tensor = self.head(self.first(images).mean(dim=1).flatten(1))
        return logits


@fedfeast.elastic(width=[2, 4])
def averaging(width: int, *, classes: int) -> nn.Module:
    """Return a member that check refuses and construction cannot see through."""
    return Averaging(width, classes)


def test_what_check_would_refuse_is_said_before_the_first_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SHORT, "population.least_macs": 500, "population.greatest_macs": 2e3}
    fedfeast.train("digits", tmp_path / "run", settings, network=averaging)
    (told,) = [one.getMessage() for one in caplog.records if "fedfeast.check would refuse" in one.getMessage()]
    assert "averaging" in told
    caplog.clear()
    fedfeast.train("digits", tmp_path / "fine", SHORT, network=own_networks.cnn)
    assert "fedfeast.check" not in caplog.text
