import json
import logging
import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe, packaged_recipes
from fedfeast.recipes.recipe import differing_settings, parse_recipe, parse_setting, resolve_recipe
from fedfeast.runs import Run

MINIMAL = 'name = "mine"\n[data]\nname = "digits"\n'


@pytest.mark.parametrize("name", packaged_recipes())
def test_shipped_recipes_parse_and_carry_their_own_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert parse_recipe(recipe.to_toml(), name) == recipe


def test_the_paper_recipe_is_the_papers_protocol() -> None:
    settings = load_recipe("cifar100-paper").settings()
    expected = {
        "population.source": "authors",
        "population.least_macs": 25e6,
        "population.greatest_macs": 1500e6,
        "population.below_smallest": "error",
        "population.gamma": 1.0,
        "population.cap_macs": 600e6,
        "partition.rule": "authors",
        "partition.loaded": "as-designed",
        "partition.alpha_eff": 0.45,
        "variants.cache": "cifar100-56",
        "training.rounds": 4000,
        "training.clients_per_round": 10,
        "training.local_epochs": 1,
        "training.batch_size": 64,
        "training.clip_norm": 10.0,
        "augmentation.randaugment": [2, 6],
        "augmentation.mixing": "alternate",
        "method.distillation_share": 0.5,
        "evaluation.selection": "population-score",
        "evaluation.score": "largest",
        "evaluation.calibration_augmented": False,
        "data.validation_examples": 4500,
        "data.calibration_examples": 500,
    }
    assert {key: settings[key] for key in expected} == expected


def test_the_authors_recipe_is_what_they_ran() -> None:
    paper, letter = load_recipe("cifar100-paper").settings(), load_recipe("cifar100-authors").settings()
    expected = {
        "name": "cifar100-authors",
        "population.least_macs": 24_957_968,
        "population.below_smallest": "lift",
        "partition.loaded": "as-loaded",
        "variants.cache": "cifar100-56-authors",
        "variants.ties": "keep",
        "training.cohort": "authors",
        "augmentation.mixing": "coin",
        "evaluation.every_rounds": 20,
        "evaluation.selection": "anchors",
        "evaluation.anchors": [25e6, 50e6, 229e6, 408e6, 596e6],
        "evaluation.calibration_augmented": True,
        "evaluation.calibration_batch": 64,
    }
    assert {key: value for key, value in letter.items() if value != paper.get(key)} == expected
    optimiser = {
        "training.learning_rate": 0.025,
        "training.momentum": 0.9,
        "training.weight_decay": 1e-4,
        "training.clip_norm": 10.0,
        "training.last_batch": "short",
        "training.unreached": "keep",
        "augmentation.mixup_beta": 0.4,
        "augmentation.cutmix_beta": 1.0,
    }
    assert {key: letter[key] for key in optimiser} == optimiser


def test_the_short_recipe_differs_from_the_papers_in_rounds_alone() -> None:
    paper, short = load_recipe("cifar100-paper").settings(), load_recipe("cifar100-short").settings()
    assert {key for key in paper if paper[key] != short[key]} == {"name", "training.rounds"}


def test_what_old_recipes_lack_is_what_they_did() -> None:
    training = parse_recipe(MINIMAL, "mine").training
    assert (training.momentum, training.last_batch, training.least_distinct) == (0.0, "topped-up", 1)
    assert training.unreached == "decay"
    server = parse_recipe(MINIMAL, "mine").server
    assert (server.optimiser, server.lookahead, server.average) == ("none", 0.0, 0.0)


def test_a_server_may_be_set_and_unset() -> None:
    recipe = load_recipe("digits", ["server.optimiser=adam", "server.betas=[0.8, 0.9]", "server.average=0.9"])
    assert (recipe.server.optimiser, recipe.server.betas) == ("adam", (0.8, 0.9))
    assert parse_recipe(recipe.to_toml(), "again").server == recipe.server
    unset = {"server.optimiser": "none", "server.betas": [0.9, 0.99], "server.average": 0.0}
    assert load_recipe("digits", ["server.optimiser=none"]) == load_recipe("digits") == resolve_recipe(recipe, unset)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["server.optimiser=sgd"], r"server.optimiser = 'sgd': input should be 'none', 'momentum' or 'adam'"),
        (["server.lookahead=1"], r"server.lookahead = 1: input should be less than 1"),
        (["server.momentum=0.5"], r"server.momentum = 0.5 has no effect with server.optimiser = 'none': leave it out"),
        (["server.optimiser=adam", "server.momentum=0.5"], r"has no effect with server.optimiser = 'adam'"),
        (["server.optimiser=momentum", "server.betas=[0.5, 0.9]"], r"server.betas = \[0.5, 0.9\] has no effect"),
        (["server.learning_rate=0.5"], r"server.learning_rate = 0.5 has no effect with server.optimiser = 'none'"),
        (["server.optimiser=adam", "server.betas=[0.5]"], r"server.betas = \[0.5\]: give two numbers"),
        (["server.optimiser=adam", "server.lookahead=0.8"], r"server.lookahead = 0.8 is a momentum of its own"),
    ],
)
def test_servers_that_cannot_be(settings: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_recipe("digits", settings)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.momentum=1", r"training.momentum = 1: input should be less than 1"),
        ("training.last_batch=long", r"training.last_batch = 'long': input should be 'topped-up' or 'short'"),
        ("training.learning_rate=inf", r"training.learning_rate = inf: input should be a finite number"),
        ("training.weight_decay=inf", r"training.weight_decay = inf: input should be a finite number"),
        ("training.class_prior=inf", r"training.class_prior = inf: input should be less than or equal to 100"),
        ("training.unreached=no", r"training.unreached = 'no': input should be 'decay' or 'keep'"),
        ("training.least_distinct=17", r"training.least_distinct = 17 is more than a batch holds .* = 16"),
    ],
)
def test_optimisers_and_batches_that_cannot_be(setting: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_recipe("digits", [setting])


def test_defaults_are_the_papers() -> None:
    recipe = parse_recipe(MINIMAL, "mine")
    assert recipe.training.rounds == 4000
    assert recipe.partition.alpha_eff == 0.45
    assert recipe.settings()["method.rule"] == "full"


def test_settings_override_any_field() -> None:
    recipe = load_recipe(
        "digits",
        ["training.rounds=5", "method.rule=local-max", "network.widths=[0.5, 1]", "augmentation.mixing=off"],
    )
    assert recipe.training.rounds == 5
    assert recipe.settings()["method.rule"] == "local-max"
    assert recipe.network.widths == (0.5, 1.0)
    assert (
        load_recipe("digits", {"partition.alpha_eff": "none", "partition.alpha_data": 0.2}).partition.alpha_eff is None
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_a_methods_levels_are_lists_in_a_list(as_text: bool) -> None:
    text, levels = "method.levels=[[1, 0.5], [4, 1]]", [[1, 0.5], [4, 1]]
    settings = ["method.name=scalefl", text] if as_text else {"method.name": "scalefl", "method.levels": levels}
    recipe = load_recipe("digits", settings)
    assert recipe.method.model_dump()["levels"] == ((1, 0.5), (4, 1.0))
    assert recipe.settings()["method.levels"] == [[1, 0.5], [4, 1.0]]
    assert parse_recipe(recipe.to_toml(), "again") == recipe


def test_the_baselines_network_has_a_section() -> None:
    recipe = load_recipe(
        "digits", ["resnet.stage_channels=[8, 16]", "resnet.blocks=[1, 1]", "resnet.stage_strides=[1, 2]"]
    )
    assert recipe.resnet.stage_channels == (8, 16)
    assert recipe.settings()["resnet.blocks"] == [1, 1]
    assert parse_recipe(recipe.to_toml(), "again") == recipe
    assert load_recipe("digits").resnet.stage_channels == (16, 32, 64, 128)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training.round": 5}, r"unknown key 'training.round' \(did you mean 'training.rounds'\?\)\."),
        ({"gamma": 1}, r"unknown key 'gamma' \(did you mean 'population.gamma'\?\)\."),
        ({"trainig.rounds": 5}, r"unknown key 'trainig' \(did you mean 'training'\?\)\."),
        ({"method.rul": "full"}, r"unknown key 'method.rul' \(did you mean 'method.rule'\?\)\."),
        ({"method.name": "feest"}, r"method.name = 'feest' is unknown \(did you mean 'feast'\?\)"),
        ({"method.rule": "everything"}, "method.rule = 'everything': input should be 'full'"),
        ({"method.max_macs": 3.0}, "unknown key 'method.max_macs'"),
        ({"training.rounds": "many"}, "training.rounds = 'many': input should be a valid integer"),
        ({"training.rounds": 2.5}, "training.rounds = 2.5"),
        ({"training.rounds": True}, "training.rounds = True"),
        ({"training.rounds": 0}, "training.rounds = 0: input should be greater than or equal to 1"),
        ({"population.gamma": -1.0}, "population.gamma = -1.0: input should be greater than or equal to 0"),
        ({"data.name": "cifar1000"}, "data.name = 'cifar1000' is no data set: choose one of digits, .*cifar100"),
        ({"training": 5}, "training = 5"),
        ({"training.rounds.more": 5}, "rounds is a value, not a section"),
        ({"partition.alpha_data": 0.1}, "alpha_eff = 0.45 and partition.alpha_data = 0.1"),
        ({"population.source": "paper"}, r"population.num_clients = 40 has no effect"),
        ({"population.file": "fleet.csv"}, "population.file = 'fleet.csv' has no effect"),
        ({"augmentation.randaugment": [2]}, "augmentation.randaugment"),
        ({"name": "none"}, "name = None: input should be a valid string"),
        ({"training.rounds": "none"}, "training.rounds = None"),
        ({"training.roundz": "none"}, "unknown key 'training.roundz'"),
        ({"method.name": [1]}, "method.name = '.1.' is unknown"),
        ({"method.name": "scalefl", "method.levels": [[1.5, 0.5]]}, r"method.levels.0.0 = 1.5: .*integer"),
        ({"method.name": "scalefl", "method.levels": [[1, 0.5, 2]]}, "method.levels.0 = .1, 0.5, 2."),
        ({"method.name": "scalefl", "method.levels": [1, 0.5]}, "method.levels.0 = 1: input should be a valid tuple"),
        ({"method.name": "scalefl", "method.levels": 4}, "method.levels = 4: input should be a valid tuple"),
        ({"method.name": "heterofl", "method.widths": ["wide"]}, "method.widths.0 = 'wide'"),
        ({"method.name": "heterofl", "method.width": [0.5]}, r"'method.width' \(did you mean 'method.widths'\?\)\."),
        ({"method.name": "heterofl", "method.weighting": "counts"}, "method.weighting = 'counts': input should be"),
        ({"method.name": "fiarse", "method.layerwise": 1}, "method.layerwise = 1"),
        ({"resnet.stem_channels": 64}, r"unknown key 'resnet.stem_channels'"),
        ({"resnet.blocks": [2, 2.5]}, "resnet.blocks.1 = 2.5"),
        ({"resnet.stage_channels": 64}, "resnet.stage_channels = 64"),
    ],
)
def test_bad_settings_get_one_clear_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        load_recipe("digits", settings)
    assert "\n" not in str(caught.value)


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"section\.key=value"):
        load_recipe("digits", ["training.rounds"])


def test_numbers_may_begin_with_their_point() -> None:
    settings = ["training.momentum=.5", "server.lookahead=.25", "network.widths=[.5, 1.0]", "training.weight_decay=0.5"]
    recipe = load_recipe("digits", settings)
    assert (recipe.training.momentum, recipe.server.lookahead, recipe.training.weight_decay) == (0.5, 0.25, 0.5)
    assert recipe.network.widths == (0.5, 1.0)
    assert parse_setting("data.folder=../.data") == ("data.folder", "../.data")
    with pytest.raises(InvalidInput, match=r"training.momentum = -0.1: input should be greater than or equal to 0"):
        load_recipe("digits", ["training.momentum=-.1"])


def test_another_selection_does_without_the_recipes_own_anchors() -> None:
    recipe = load_recipe("cifar100-authors", ["evaluation.selection=largest"])
    assert (recipe.evaluation.selection, recipe.evaluation.anchors) == ("largest", None)
    with pytest.raises(InvalidInput, match=r"evaluation.anchors = \(0.0, 1.0\) has no effect"):
        load_recipe("cifar100-authors", ["evaluation.selection=largest", "evaluation.anchors=[0, 1]"])


def test_the_trainings_of_the_page_on_baselines_are_taken() -> None:
    text = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^fedfeast train (cifar100\S* .*?)(?:#.*)?$", text, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        name, *words = shlex.split(command)
        load_recipe(name, [word for before, word in pairwise(words) if before == "--set"])


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"unknown recipe 'digit' \(did you mean 'digits'\?\).*cifar100-paper"):
        load_recipe("digit")


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("name = [")
    with pytest.raises(InvalidInput, match=r"broken.toml is no valid TOML"):
        load_recipe(str(path))


def test_a_recipe_object_takes_settings_too() -> None:
    recipe = load_recipe("digits")
    assert resolve_recipe(recipe) is recipe
    assert resolve_recipe(recipe, {"training.rounds": 3}).training.rounds == 3
    with pytest.raises(InvalidInput, match="unknown key 'nonsense'"):
        resolve_recipe(recipe, {"nonsense.key": 1})
    assert resolve_recipe(Path("digits")) == recipe


def test_control_characters_survive_in_a_written_recipe() -> None:
    odd = parse_recipe(MINIMAL, "mine", {"name": 'a\nb\t"c"\x01'})
    assert parse_recipe(odd.to_toml(), "again") == odd


def test_a_written_recipe_is_plain_toml() -> None:
    awkward = parse_recipe(MINIMAL, "mine", {"data.folder": 'C:\\data "new"'})
    assert tomllib.loads(awkward.to_toml())["data"]["folder"] == 'C:\\data "new"'


@pytest.mark.parametrize(("name", "examples"), [("cinic10-paper", (81000, 9000)), ("tinyimagenet-paper", (9000, 1000))])
def test_the_papers_other_data_sets_keep_its_protocol(name: str, examples: tuple[int, int]) -> None:
    paper, other = load_recipe("cifar100-paper").settings(), load_recipe(name).settings()
    own = {"name", "data.name", "data.validation_examples", "data.calibration_examples", "variants.cache"}
    own |= {"network.stem_stride", "resnet.stem_stride", "augmentation.crop_fill", "augmentation.crop_padding"}
    assert {key for key in paper if paper[key] != other[key]} <= own
    assert (other["data.validation_examples"], other["data.calibration_examples"]) == examples
    stride = 2 if name == "tinyimagenet-paper" else 1
    assert other["network.stem_stride"] == other["resnet.stem_stride"] == stride
    assert (other["augmentation.crop_fill"], other["augmentation.crop_padding"]) == ("reflect", 4 * stride)
    if name == "tinyimagenet-paper":
        assert other["data.mean"] == [0.4802, 0.4481, 0.3975]
        assert other["data.deviation"] == [0.277, 0.2691, 0.2821]


@pytest.mark.parametrize("name", ["cinic10", "tinyimagenet"])
def test_what_the_authors_ran_on_other_data_sets_is_their_protocol_on_other_data(name: str) -> None:
    letter, other = load_recipe("cifar100-authors").settings(), load_recipe(f"{name}-authors").settings()
    differs = {key: value for key, value in other.items() if value != letter.get(key)}
    of_data = {key: value for key, value in load_recipe(f"{name}-paper").settings().items() if key in differs}
    # As the recipe of the paper's text has it for these data, but for what the authors did otherwise.
    own: dict[str, Any] = {"name": f"{name}-authors", "variants.cache": f"{name}-56-authors"}
    if name == "tinyimagenet":
        own |= {"population.least_macs": 26_968_384, "evaluation.anchors": [0, 3, 22, 38, 55]}
        assert other["partition.loaded"] == "as-loaded"
    else:
        own |= {"partition.loaded": "as-designed"}
    assert differs == of_data | own


def test_prepared_data_are_looked_up_in_the_recipes_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    described = {"classes": 3, "channels": 1, "side": 8, "examples": {"train": 6, "test": 3}, "normalisation": None}
    arrays = {
        f"{split}_{kind}.npy": {"bytes": 1, "sha256": ""}
        for split in ("train", "test")
        for kind in ("images", "labels")
    }
    (folder / "dataset.json").write_text(json.dumps({**described, "arrays": arrays}))
    recipe = load_recipe("digits", {"data.name": "mine", "data.folder": str(tmp_path)})
    assert recipe.data.facts.classes == 3
    with pytest.raises(InvalidInput, match=r"data.name = 'mine' is no data set"):
        load_recipe("digits", {"data.name": "mine", "data.folder": str(folder)})


RENAMED = "[hostile] is now called [adversary]; the former name still works"


def test_a_former_section_still_works_and_says_its_name_of_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.toml").write_text(f"{MINIMAL}[hostile]\nshare = 0.1\n")
    with caplog.at_level(logging.WARNING, "fedfeast"):
        written = load_recipe(str(tmp_path / "mine.toml"))
        given = load_recipe("digits", ["hostile.share=0.2", "adversary.enlargement=3"])
        load_recipe("digits", ["adversary.share=0.2"])
    assert [record.getMessage() for record in caplog.records] == [RENAMED, RENAMED]
    assert written.adversary.share == 0.1
    assert (given.adversary.share, given.adversary.enlargement) == (0.2, 3)
    assert "[adversary]" in given.to_toml()
    assert "hostile" not in given.to_toml()


def test_a_setting_by_either_name_goes_over_what_the_file_says() -> None:
    former = f"{MINIMAL}[hostile]\nshare = 0.1\nenlargement = 2.0\n"
    for name in ("hostile", "adversary"):
        adversary = parse_recipe(former, "mine", [f"{name}.share=0.3"]).adversary
        assert (adversary.share, adversary.enlargement) == (0.3, 2)


def test_both_names_of_one_section_are_refused() -> None:
    text = f"{MINIMAL}[hostile]\nshare = 0.1\n[adversary]\nenlargement = 5.0\n"
    with pytest.raises(InvalidInput, match=r"mine has \[hostile\] and \[adversary\], two names of one section: keep"):
        parse_recipe(text, "mine")


def test_a_run_folder_with_a_former_section_is_read_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Run.create("digits", tmp_path / "run", {"adversary.share": 0.2}).folder
    recipe = folder.path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("[adversary]", "[hostile]"))
    assert "[hostile]" in recipe.read_text()
    assert Run.open(folder.path).recipe.adversary.share == 0.2
    assert caplog.records == []


def test_another_builder_does_not_take_the_values_of_the_recipes_own() -> None:
    text = (
        MINIMAL
        + """
[network]
builder = "conv1d"
choices = { width = [2, 4], depth = [1, 2] }
options = { dropout = 0.1 }
[variants]
cache = "conv1d.csv"
num_targets = 3
"""
    )
    other = parse_recipe(text, "text", {"network.builder": "nested_transformer"})
    assert (other.network.choices, other.network.options) == ({}, {})
    assert (other.variants.cache, other.variants.num_targets) == ("members", 3)
    given = {"network.builder": "nested_transformer", "network.choices.depth": [1, 3], "variants.cache": "mine.csv"}
    told = parse_recipe(text, "text", given)
    assert (told.network.choices, told.variants.cache) == ({"depth": [1, 3]}, "mine.csv")
    same = parse_recipe(text, "text", {"network.builder": "conv1d", "seed": 1})
    assert (same.network.choices["width"], same.variants.cache) == ([2, 4], "conv1d.csv")
    assert load_recipe("digits", {"network.builder": "conv1d"}).variants.cache == "members"


@pytest.mark.parametrize("value", ["ada", 1.0])
def test_neither_a_share_nor_names(value: object) -> None:
    with pytest.raises(InvalidInput, match=rf"data.held_out_clients = {value!r}: give a share below 1, or names."):
        parse_recipe(MINIMAL, "text", {"data.held_out_clients": value})


def test_a_section_that_is_given_whole_stays_the_callers() -> None:
    given = {"population": {"source": "zipf", "num_clients": 7}, "population.num_clients": 9}
    assert load_recipe("cifar100-paper", {**given, "partition": {}}).population.num_clients == 9
    assert given["population"] == {"source": "zipf", "num_clients": 7}


@pytest.mark.parametrize("given", ["auto", "all", "none", 1, 7])
def test_sizes_are_a_word_or_a_number_and_stay_so(given: str | int) -> None:
    recipe = load_recipe("digits", {"evaluation.sizes": given})
    assert recipe.evaluation.sizes == given
    assert parse_recipe(recipe.to_toml(), "again") == recipe


@pytest.mark.parametrize("given", ["some", 0, -1, 2.5, True, [1]])
def test_sizes_that_are_neither_are_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match=r"evaluation.sizes = .*: give auto, all, none, or a number of sizes"):
        load_recipe("digits", {"evaluation.sizes": given})


@pytest.mark.parametrize("given", ["all", 3])
def test_clients_are_asked_for_no_further_size(given: str | int) -> None:
    with pytest.raises(InvalidInput, match=r"evaluation.sizes = .* needs the server's examples"):
        load_recipe("digits", {"evaluation.sizes": given, "evaluation.by": "clients"})


def test_differing_settings_name_every_setting_and_all_values() -> None:
    one = load_recipe("digits")
    other = load_recipe("digits", {"population.gamma": 0.5, "method.name": "fedavg"})
    found = differing_settings([one, other, one])
    assert found["population.gamma"] == (1.0, 0.5, 1.0)
    assert found["method.name"] == ("feast", "fedavg", "feast")
    assert found["method.rule"] == ("full", None, "full")
    assert differing_settings([one, load_recipe("digits")]) == {}
