import numpy as np
import pytest

from fedfeast.planning.coverage import cover
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe


def test_coverage_of_the_digits_federation() -> None:
    built = outline(load_recipe("digits"))
    coverage = cover(built, np.full(40, 29.0))
    assert coverage is not None
    assert sum(part["parameters"] for part in coverage["parts"]) == 546_906
    assert coverage["routed_parameters"] == coverage["activated_parameters"] == 546_906
    assert 0 < coverage["psi_min"] <= coverage["psi_max"]
    assert coverage["bound"]["discrepancy"] == pytest.approx(coverage["psi_min"] ** -2)
    blocks = {part["block"]: part["client_share"] for part in coverage["parts"] if part["stage"] == "stage3"}
    assert blocks[2] < blocks[1], "deeper blocks reach fewer clients"


def test_the_same_seed_gives_the_same_estimate() -> None:
    built = outline(load_recipe("digits"))
    assert cover(built, np.full(40, 29.0)) == cover(built, np.full(40, 29.0))


def test_only_methods_that_share_slices_have_coverage() -> None:
    assert cover(outline(load_recipe("digits", {"method.name": "fedavg"})), np.full(40, 29.0)) is None
