from collections.abc import Mapping
from typing import Any

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.recipes import Recipe
from fedfeast.studies import STUDIES, StudyOptions, find_study
from fedfeast.studies.protocol import refuse_disagreement
from fedfeast.studies.study import Study


def test_every_study_of_the_paper_is_there() -> None:
    assert list(STUDIES) == [
        "table1-population",
        "table2-training-rules",
        "table3-federated-nas",
        "figure1-gamma",
        "figure2-curves",
        "equal-compute",
        "serving-density",
        "post-hoc-extraction",
        "communication",
        "footprint",
        "zipf-sensitivity",
        "dirichlet-sensitivity",
        "digits-all",
    ]


@pytest.mark.parametrize("dataset", ["cifar100", "digits"])
@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_definitions_resolve_and_agree_in_protocol(study: Study, dataset: str) -> None:
    if dataset not in study.datasets:
        dataset = study.datasets[0]
    options = StudyOptions(dataset)

    def resolve(settings: Mapping[str, Any]) -> Recipe:
        return options.recipe(study, settings)

    arms = study.arms(resolve)
    recipes = {arm.name: resolve(arm.settings) for arm in arms}
    assert len(recipes) == len(arms), "arms have names of their own"
    refuse_disagreement(recipes, study.varied)


def test_an_unknown_name_is_answered_with_the_close_ones() -> None:
    assert find_study("footprint") is STUDIES["footprint"]
    with pytest.raises(InvalidInput, match=r"unknown study 'table1' \(did you mean 'table1-population'\?\)"):
        find_study("table1")
    with pytest.raises(InvalidInput, match="'dirichlet-sensitivity' or 'zipf-sensitivity'"):
        find_study("zirichlet-sensitivity")
    with pytest.raises(InvalidInput, match=r"unknown study 'xyz': choose one of table1-population, "):
        find_study("xyz")
