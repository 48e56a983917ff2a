"""The paper's numbers agree with each other, so that a slip of the pen is seen."""

import pytest

from fedfeast.evaluation import published
from fedfeast.studies.arms import BASELINES


@pytest.mark.parametrize("data", published.POPULATION_SCORES)
def test_margins_follow_from_the_scores(data: str) -> None:
    scores = published.POPULATION_SCORES[data]
    strongest = max(scores[baseline] for baseline in BASELINES)
    assert scores["feast"] - strongest == pytest.approx(published.MARGINS[data], abs=0.005)


def test_the_main_results_are_the_same_wherever_they_stand() -> None:
    full = published.TRAINING_RULES["cifar100"]["full"]
    assert published.LARGEST_BY_GAMMA["cifar100"][1.0] == full[-1]
    assert full[-1] - full[0] == pytest.approx(published.CHANGES["cifar100"], abs=0.005)
    assert published.FEDERATED_NAS["cifar100"]["feast"] == full
    for rows in (published.TRAINING_RULES["cifar100"], published.FEDERATED_NAS["cifar100"]):
        assert len(rows) == 5
        assert all(len(row) == len(published.ANCHORS_MACS) for row in rows.values())


def test_gains_and_leads_follow_from_the_accuracies() -> None:
    by_gamma = published.LARGEST_BY_GAMMA["cifar100"]
    gains, leads = published.GAMMA_GAINS["cifar100"], published.LEADS_BY_GAMMA["cifar100"]
    assert by_gamma[1.0] - by_gamma[0.0] == pytest.approx(gains["feast"], abs=0.005)
    # FIARSE is the strongest baseline at both ends: what it gains is FEAST's gain and the lead that it makes up.
    assert gains["feast"] + leads[0.0] - leads[1.0] == pytest.approx(gains["fiarse"], abs=0.005)


def test_equal_compute_and_communication() -> None:
    scores = published.EQUAL_COMPUTE_SCORES["cifar100"]
    for baseline, lead in published.EQUAL_COMPUTE_LEADS["cifar100"].items():
        assert scores["feast"] - scores[baseline] == pytest.approx(lead, abs=0.05)
    sent = published.COMMUNICATION["cifar100"]
    assert sent["supernet"] / sent["mean"] == pytest.approx(sent["reduction"], abs=0.05)
