"""The reasons for a difference: the page in docs/ says what reports say."""

from pathlib import Path

import pytest

from fedfeast.evaluation.differences import CERTAINTIES, IN_THEIR_CODE, OF_OUR_OWN, PAGE, SOURCE, Difference
from fedfeast.recipes import load_recipe

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text()


@pytest.mark.parametrize("one", IN_THEIR_CODE, ids=lambda one: one.name)
def test_the_page_has_every_reason(one: Difference) -> None:
    (section,) = [part for part in TEXT.split("\n### ")[1:] if part.partition("\n")[0].endswith(f". {one.name}")]
    for words in (one.what, f"- Touches: {one.touches}", f"- Certainty: **{one.certainty}**.", f"- Here: {one.here}"):
        assert words in section
    assert one.certainty_in_words == CERTAINTIES[one.certainty]


def test_the_page_names_its_source_and_our_own_reasons() -> None:
    assert SOURCE in TEXT
    assert "commit dbc4630" in SOURCE
    assert all(f"- {one}" in TEXT for one in OF_OUR_OWN)
    assert TEXT.count("\n### ") == len(IN_THEIR_CODE)


def test_what_it_says_of_recipes_is_so() -> None:
    letter, text = load_recipe("cifar100-authors"), load_recipe("cifar100-paper")
    assert (letter.partition.loaded, text.partition.loaded) == ("as-loaded", "as-designed")
    assert (letter.augmentation.mixing, text.augmentation.mixing) == ("coin", "alternate")
    assert (letter.evaluation.selection, text.evaluation.selection) == ("anchors", "population-score")
    assert (letter.evaluation.calibration_augmented, text.evaluation.calibration_augmented) == (True, False)


@pytest.mark.parametrize(
    "page", ["docs/README.md", "docs/studies.md", "docs/baselines.md", "docs/decisions/031-two-protocols.md"]
)
def test_other_pages_lead_there(page: str) -> None:
    assert "differences.md" in (ROOT / page).read_text()
