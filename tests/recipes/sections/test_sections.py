import pytest
from pydantic import ValidationError

from fedfeast.data import DatasetFacts, Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.methods import METHODS
from fedfeast.networks import ResNet
from fedfeast.recipes.recipe import Recipe, parse_recipe
from fedfeast.recipes.sections import (
    PartitionSection,
    PopulationSection,
    ResNetSection,
    TrainingSection,
    method_section,
)


def test_every_method_has_a_section_with_its_hyper_parameters() -> None:
    assert {method_section(name)().model_dump()["name"] for name in METHODS} == METHODS.keys()
    elastic = {"backbone": "elastic", "widths": None}
    feast = method_section("feast")().model_dump()
    cheaper = {"sampling": "uniform", "smallest_share": 1.0, "student_batch": 1.0, "progressive": 0.0}
    paper = {"rule": "full", "distillation_share": 0.5, "temperature": 1.0}
    assert feast == {"name": "feast", **paper, **elastic, **cheaper}
    assert method_section("fedavg").model_validate({"max_macs": 3e6}).model_dump() == {
        "name": "fedavg",
        "max_macs": 3e6,
        **elastic,
    }


def test_one_alpha_is_enough_and_two_are_too_many() -> None:
    assert PartitionSection().alpha_eff == 0.45
    assert PartitionSection(alpha_data=0.1).alpha_eff is None
    with pytest.raises(ValidationError, match="set the same thing"):
        PartitionSection(alpha_eff=0.3, alpha_data=0.1)
    alike = PartitionSection(alpha_client=0.1)
    assert (alike.alpha_eff, alike.alpha_data, alike.alpha_client) == (None, None, 0.1)
    with pytest.raises(ValidationError, match=r"partition.alpha_data = 0.2 and partition.alpha_client = 0.1"):
        PartitionSection(alpha_data=0.2, alpha_client=0.1)


def test_settings_that_a_source_would_ignore_are_refused() -> None:
    with pytest.raises(ValidationError, match="num_clients = 50 has no effect"):
        PopulationSection(source="paper", num_clients=50)
    assert PopulationSection(source="file", file="fleet.csv", num_clients=50).file == "fleet.csv"


@pytest.mark.parametrize("source", ["zipf", "paper", "file", "fleet"])
def test_pooling_is_for_the_datas_own_clients(source: str) -> None:
    with pytest.raises(ValidationError, match=f"pooled = True has no effect with population.source = '{source}'"):
        PopulationSection.model_validate({"source": source, "pooled": True})


@pytest.mark.parametrize("other", [{"file": "fleet.csv"}, {"correlation": 0.5}])
def test_everyone_as_one_client_has_one_budget(other: dict[str, object]) -> None:
    assert PopulationSection.model_validate({"source": "data", "pooled": True, "exponent": 0.3}).pooled
    with pytest.raises(ValidationError, match=r"has no effect with population.pooled = true, .* leave one of them out"):
        PopulationSection.model_validate({"source": "data", "pooled": True, **other})


def test_sections_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TrainingSection().rounds = 5  # type: ignore[misc]


def test_the_baselines_network_is_resnet_18_by_default() -> None:
    assert ResNet(**ResNetSection().model_dump()) == ResNet()
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ResNetSection(activation="before")  # type: ignore[call-arg]  # a method decides it
    with pytest.raises(ValidationError, match="valid integer"):
        ResNetSection.model_validate({"stem_stride": 1.5})


AWAY = ("data.name=away", "network.builder=conv1d")
NUMBERS = 'data.description={classes = 4, kind = "numbers", shape = [6, 128]}'


def data_recipe(*settings: str) -> Recipe:
    return parse_recipe('name = "one"\n[data]\nname = "digits"', "one", settings)


def test_data_that_are_not_here_can_be_described() -> None:
    recipe = data_recipe(*AWAY, NUMBERS, "data.mean=[0, 0, 1, 0, 0, 0]", "data.deviation=[1, 1, 1, 2, 1, 1]")
    assert recipe.data.facts == DatasetFacts(4, 6, 128, 0, 0, kind="numbers", shape=(6, 128))
    assert recipe.data.normalisation == Normalisation((0, 0, 1, 0, 0, 0), (1, 1, 1, 2, 1, 1))
    assert parse_recipe(recipe.to_toml(), "again") == recipe
    images = data_recipe("data.name=away", "data.description={classes = 7, shape = [3, 16, 16]}")
    assert images.data.facts == DatasetFacts(7, 3, 16, 0, 0)
    tokens = 'data.description={classes = 2, kind = "tokens", shape = [9], vocabulary = 30}'
    assert data_recipe(*AWAY, tokens).data.facts.known == {"classes": 2, "shape": (9,), "vocabulary": 30, "length": 9}
    known = data_recipe("data.description={classes = 10, shape = [1, 8, 8]}")
    assert known.data.facts.train_examples == 1442  # those of the data set itself


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (AWAY, "data.name = 'away' is no data set: .*, describe those that a fleet's clients alone have"),
        ((*AWAY, "data.description.shape=[6]"), "data.description.classes is missing: add it"),
        ((*AWAY, NUMBERS, "data.description.clases=3"), "did you mean 'data.description.classes'"),
        ((*AWAY, NUMBERS, "data.description.shape=[6, 0]"), r"data\.description\.shape\.1 = 0: .*greater"),
        ((*AWAY, "data.description={classes = 3, shape = [3, 8, 9]}"), r"shape = \[3, 8, 9\] is of no square images"),
        ((*AWAY, NUMBERS, "data.description.task=next-token"), "is for tokens, and data.description.kind = 'numbers'"),
        ((*AWAY, NUMBERS, "data.description.vocabulary=5"), "data.description.vocabulary = 5 is of tokens"),
        (("data.description={classes = 9, shape = [1, 8, 8]}",), "has classes 9, and digits has 10: correct it"),
        (("data.mean=[0.5]",), "data.mean is given without data.deviation"),
        (("data.mean=[0.5]", "data.deviation=[0.0]"), r"data.deviation = \[0.0\]: give positive numbers"),
        (("data.mean=[nan]", "data.deviation=[1.0]"), r"data.mean = \[nan\]: give finite numbers"),
        (("data.mean=[0.5, 1]", "data.deviation=[1.0]"), "has 2 numbers, and examples of digits have 1 channels"),
        (("data.name=shakespeare", "network.builder=nested_transformer", "data.mean=[0]"), "tokens are not normalised"),
    ],
)
def test_what_cannot_be_said_of_data(settings: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        data_recipe(*settings)
