"""All studies by name."""

from difflib import get_close_matches

from fedfeast.errors import InvalidInput
from fedfeast.studies.catalogue.allocation import GAMMA
from fedfeast.studies.catalogue.baselines import CURVES, DENSITY, EQUAL_COMPUTE, POPULATION
from fedfeast.studies.catalogue.controls import CONTROLS
from fedfeast.studies.catalogue.costs import COMMUNICATION, FOOTPRINT
from fedfeast.studies.catalogue.coverage import COVERAGE
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.catalogue.extraction import EXTRACTION
from fedfeast.studies.catalogue.natural import NATURAL
from fedfeast.studies.catalogue.one_size import ONE_SIZE
from fedfeast.studies.catalogue.plus import PLUS_STUDY
from fedfeast.studies.catalogue.rules import FEDERATED_NAS, TRAINING_RULES
from fedfeast.studies.catalogue.sensitivity import DIRICHLET_SENSITIVITY, ZIPF_SENSITIVITY
from fedfeast.studies.study import Study

CHOOSE = "choose"  # a study of any recipe, which is planned otherwise
STUDIES = {
    study.name: study
    for study in (
        POPULATION,
        TRAINING_RULES,
        FEDERATED_NAS,
        GAMMA,
        CURVES,
        EQUAL_COMPUTE,
        DENSITY,
        EXTRACTION,
        COMMUNICATION,
        FOOTPRINT,
        COVERAGE,
        ZIPF_SENSITIVITY,
        DIRICHLET_SENSITIVITY,
        *CONTROLS,
        ONE_SIZE,
        DIGITS,
        NATURAL,
        PLUS_STUDY,
    )
}


def find_study(name: str) -> Study:
    """Return the study of that name; an unknown name is answered with the close ones."""
    if name == CHOOSE:
        raise InvalidInput(
            "study choose is about a recipe: fedfeast study choose RECIPE --minutes 5, or fedfeast.choose in Python."
        )
    if name not in STUDIES:
        close = [one for one in STUDIES if name and name in one] or get_close_matches(name, [*STUDIES, CHOOSE], n=3)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise InvalidInput(
            f"unknown study {name!r}{hint}: choose one of {', '.join(STUDIES)}, or {CHOOSE} and a recipe."
        )
    return STUDIES[name]
