import pytest
from pydantic import ValidationError

from fedfeast.methods import METHODS
from fedfeast.networks import ResNet
from fedfeast.recipes.sections import (
    PartitionSection,
    PopulationSection,
    ResNetSection,
    TrainingSection,
    method_section,
)


def test_every_method_has_a_section_with_its_hyper_parameters() -> None:
    assert {method_section(name)().model_dump()["name"] for name in METHODS} == METHODS.keys()
    assert method_section("feast")().model_dump() == {"name": "feast", "rule": "full", "distillation_share": 0.5}
    assert method_section("fedavg").model_validate({"max_macs": 3e6}).model_dump() == {
        "name": "fedavg",
        "max_macs": 3e6,
    }


def test_one_alpha_is_enough_and_two_are_too_many() -> None:
    assert PartitionSection().alpha_eff == 0.45
    assert PartitionSection(alpha_data=0.1).alpha_eff is None
    with pytest.raises(ValidationError, match="set the same thing"):
        PartitionSection(alpha_eff=0.3, alpha_data=0.1)


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
