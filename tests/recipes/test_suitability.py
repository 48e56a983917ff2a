"""Whether a recipe's sections go together with its data: every refusal is one sentence with the fix."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfeast.data import PrepareOptions, prepare_data
from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe import parse_recipe
from fedfeast.recipes.suitability import MEMBERS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers and tokens with and without clients, and images of several labels."""
    folder, generator = tmp_path_factory.mktemp("data"), named_generator(0)
    people = np.repeat(["ada", "bob", "cyd"], 4)
    waves, classes = generator.normal(size=(12, 2, 16)).astype(np.float32), np.arange(12) % 2
    words = generator.integers(0, 9, (12, 5))
    images = generator.integers(0, 256, (12, 1, 8, 8), dtype=np.uint8)
    np.savez(folder / "waves.npz", inputs=waves, labels=classes, person=people)
    np.savez(folder / "words.npz", inputs=words, labels=words, person=people)
    np.savez(folder / "tags.npz", inputs=images, labels=generator.integers(0, 2, (12, 3)))
    prepare_data("waves", folder / "waves.npz", folder, PrepareOptions(clients="person"))
    prepare_data("alone", folder / "waves.npz", folder, PrepareOptions(labels="labels"))
    prepare_data("words", folder / "words.npz", folder, PrepareOptions(clients="person", task="next-token"))
    prepare_data("tags", folder / "tags.npz", folder, PrepareOptions(task="multi-label"))
    return folder


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (None, "population.correlation = 0.5 has no effect where every client has 2 examples: leave it out, or let"),
        ("client,budget_macs\nada,1e6\n", r"has no column name, only \['client', 'budget_macs'\]; say which client"),
        (
            "name,budget_macs\nadda,1e6\n",
            r"'adda', and the data have no such client \(did you mean 'ada'\?\): correct it",
        ),
        ("name,budget_macs\n", "has no rows below the header"),
    ],
)
def test_budgets_that_do_not_go_with_the_data_s_clients(
    data: Path, tmp_path: Path, rows: str | None, sentence: str
) -> None:
    (tmp_path / "budgets.csv").write_text(rows or "")
    given = {"population.correlation": 0.5} if rows is None else {"population.file": str(tmp_path / "budgets.csv")}
    server = {"data.server_clients": 0.0, "data.validation_examples": 1, "data.calibration_examples": 2}
    settings = {"data.name": "waves", "data.folder": str(data), "data.held_out_clients": 0.0, **server, **given}
    with pytest.raises(InvalidInput, match=sentence):
        outline(load_recipe("motion", {**settings, "evaluation.by": "clients"}))


def refusal(recipe: str, data: Path, settings: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_recipe(recipe, {"data.folder": str(data), **settings})
    return str(caught.value)


WAVES = {"data.name": "waves", "data.held_out_clients": 0.3, "data.server_clients": 0.3}
WORDS = {**WAVES, "data.name": "words", "network.builder": "nested_transformer", "network.choices": {}}
TAGS = {"data.name": "tags", "network.builder": "conv1d", "variants.cache": MEMBERS}


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        (
            "motion",
            {**WAVES, "augmentation.flip": True},
            "augmentation.flip = True is for images, and waves holds numbers: "
            "leave it out, or choose time_shift, noise or mask_share.",
        ),
        (
            "motion",
            {**WAVES, "augmentation.mixing": "alternate"},
            "augmentation.mixing = 'alternate' is for images, and waves holds numbers: "
            "leave it out, or choose time_shift, noise or mask_share.",
        ),
        (
            "text",
            {**WORDS, "augmentation.time_shift": 2},
            "augmentation.time_shift = 2 is for numbers, and words holds tokens: leave it out, or choose mask_share.",
        ),
        (
            "text",
            {**WORDS, "augmentation.flip": True},
            "augmentation.flip = True is for images, and words holds tokens: leave it out, or choose mask_share.",
        ),
        (
            "text",
            {**WORDS, "augmentation.noise": 0.5},
            "augmentation.noise = 0.5 is for numbers, and words holds tokens: leave it out, or choose mask_share.",
        ),
        (
            "digits",
            {**TAGS, "augmentation.mixing": "alternate"},
            "augmentation.mixing = 'alternate' mixes classes, and the task of tags is multi-label: "
            "set augmentation.mixing=off.",
        ),
        (
            "motion",
            {**WAVES, "network.builder": "none"},
            "waves holds numbers for classification, and the elastic ResNet takes images of classes: "
            "set network.builder to a network for it, e.g. nested_transformer.",
        ),
        (
            "digits",
            {"data.name": "tags"},
            "tags holds images for multi-label, and the elastic ResNet takes images of classes: "
            "set network.builder to a network for it, e.g. nested_transformer.",
        ),
        (
            "digits",
            {"network.choices": {"width": [2, 4]}},
            "network.choices and network.options are a builder's: set network.builder too.",
        ),
        (
            "digits",
            {"network.options": {"dropout": 0.1}},
            "network.choices and network.options are a builder's: set network.builder too.",
        ),
        (
            "motion",
            {**WAVES, "network.branch": "signed"},
            "network.branch = 'signed' is of the package's ResNets, and network.builder = 'conv1d' makes its own "
            "layers: leave it out, or build it into the constructor.",
        ),
        (
            "motion",
            {**WAVES, "network.branch_scale": 0.2},
            "network.branch_scale = 0.2 is of the package's ResNets, and network.builder = 'conv1d' makes its own "
            "layers: leave it out, or build it into the constructor.",
        ),
        (
            "digits",
            {"variants.cache": MEMBERS},
            'variants.cache = "members" needs network.builder: name a cache, or set the builder.',
        ),
        (
            "text",
            {**WORDS, "training.class_prior": 1.0},
            "training.class_prior = 1 is for classes, and the task of words is next-token: leave it out.",
        ),
        (
            "motion",
            {**WAVES, "evaluation.metric": "bits"},
            "metric 'bits'",
        ),
        (
            "motion",
            {**WAVES, "data.name": "alone"},
            "population.source = 'data', and alone has no clients of its own: "
            "prepare it with --clients, or choose zipf.",
        ),
        (
            "digits",
            {"data.held_out_clients": 0.2},
            "data.held_out_clients = 0.2 is for the data's own clients: set population.source=data, or leave it out.",
        ),
        (
            "digits",
            {"data.server_clients": ["ada"]},
            "data.server_clients = ('ada',) is for the data's own clients: "
            "set population.source=data, or leave it out.",
        ),
        (
            "digits",
            {"data.least_examples": 3},
            "data.least_examples = 3 is for the data's own clients: set population.source=data, or leave it out.",
        ),
        (
            "digits",
            {"data.small_clients": "pool"},
            "data.small_clients = 'pool' is for the data's own clients: set population.source=data, or leave it out.",
        ),
        (
            "digits",
            {"data.most_examples": 3},
            "data.most_examples = 3 is for the data's own clients: set population.source=data, or leave it out.",
        ),
        (
            "digits",
            {"augmentation.mixing": "off", "augmentation.mixing_until": 0.5},
            "augmentation.mixing_until = 0.5 has no effect with augmentation.mixing = 'off': leave it out, or choose "
            "alternate or coin.",
        ),
        (
            "digits",
            {"training.rounds": 5, "training.warmup_rounds": 5},
            "training.warmup_rounds = 5 leaves nothing of training.rounds = 5: give fewer than there are rounds.",
        ),
    ],
)
def test_what_does_not_go_together(recipe: str, settings: dict[str, Any], sentence: str, data: Path) -> None:
    assert sentence in refusal(recipe, data, settings)


def test_what_is_no_image_goes_through_no_image_augmentation(data: Path) -> None:
    section = load_recipe("motion", {"data.folder": str(data), **WAVES, "augmentation.noise": 0.1}).augmentation
    assert (section.crop_padding, section.flip, section.randaugment, section.mixing) == (0, False, (0, 0), "off")
    assert section.noise == 0.1


def test_other_figures_of_the_task_may_judge(data: Path) -> None:
    recipe = load_recipe("text", {"data.folder": str(data), **WORDS, "evaluation.metric": "accuracy"})
    assert recipe.metric.name == "accuracy"
    assert load_recipe("text", {"data.folder": str(data), **WORDS}).metric.name == "bits"


def test_a_score_has_members_to_choose_from(data: Path) -> None:
    said = refusal("digits", data, {"variants.score": f"{__file__}:refusal"})
    assert "chooses among a builder's members, and variants.cache = " in said


def test_what_has_no_single_classes_is_not_mixed_unless_asked_for(data: Path) -> None:
    np.savez(data / "levels.npz", inputs=np.zeros((9, 1, 8, 8), np.uint8), labels=np.arange(9.0))
    prepare_data("levels", data / "levels.npz", data, PrepareOptions(task="regression"), replace=True)
    settings = {"data.folder": str(data), "data.name": "levels", "network.builder": "conv1d", "variants.cache": MEMBERS}
    text = 'name = "levels"\n[data]\nname = "levels"\n'
    section = parse_recipe(text, "levels", settings).augmentation
    assert (section.mixing, section.flip) == ("off", True)


CENTRAL = {"privacy.mechanism": "central", "privacy.clip_norm": 1.0, "training.cohort": "poisson"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"privacy.clip_norm": "none"}, "privacy.mechanism = 'central' bounds nothing without privacy.clip_norm: set"),
        ({"training.cohort": "named"}, "training.cohort = 'named': set training.cohort=poisson"),
        ({"training.cohort": "authors"}, "training.cohort = 'authors': set training.cohort=poisson"),
        ({"method.name": "superfednas"}, "SuperFedNas gives a client its network by who else takes part"),
        ({"method.name": "deepfednas"}, "DeepFedNas gives a client its network by who else takes part"),
        ({"aggregation.rule": "median"}, "aggregation.rule = 'median' weighs answers against each other"),
        ({"aggregation.refuse_multiple": 5.0}, "aggregation.refuse_multiple = 5.0 compares a change with those of"),
        ({"aggregation.weight_cap": 2.0}, "aggregation.weight_cap = 2.0 follows the weights of others"),
        ({"aggregation.activated_share": True}, "aggregation.activated_share = True divides by what this round's"),
        ({"aggregation.weigh": "alike", "privacy.usual_examples": 9.0}, "contradict each other: leave one of them out"),
        ({"privacy.most_weight": 2.0}, "privacy.most_weight = 2 has no effect where all clients weigh 1: set"),
        (
            {"privacy.mechanism": "local", "privacy.usual_examples": 9.0},
            "privacy.usual_examples = 9 is for noise that the",
        ),
        ({"evaluation.by": "clients"}, "tells counts and statistics without noise"),
    ],
)
def test_what_central_privacy_could_not_hide_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        load_recipe("digits", {**CENTRAL, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"privacy.usual_examples": 20.0, "privacy.most_weight": 3.0},
        {"server.optimiser": "adam"},
        {"server.average": 0.9},
        {"aggregation.weigh": "alike"},
        {"adversary.share": 0.2},
        *({"method.name": name} for name in ("fedavg", "heterofl", "fjord", "fedrolex", "scalefl", "fiarse")),
    ],
)
def test_what_follows_the_noise_goes_with_central_privacy(settings: dict[str, Any]) -> None:
    assert load_recipe("digits", {**CENTRAL, **settings}).privacy.mechanism == "central"
