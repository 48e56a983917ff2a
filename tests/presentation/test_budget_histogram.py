import numpy as np

from fedfeast.presentation.budget_histogram import BINS, budget_histogram


def test_every_client_is_counted_once() -> None:
    fleet = budget_histogram(np.array([50.0, 100, 150, 999, 1000, 5000]), [100, 1000])
    assert fleet["clients"] == sum(fleet["counts"]) == 6
    assert len(fleet["edges_macs"]) == BINS + 1
    assert fleet["edges_macs"][0] < 50
    assert fleet["edges_macs"][-1] > 5000
    assert fleet["by_variant"] == [3, 2]
    assert fleet["served"] == 5
    assert fleet["median_macs"] == 574.5


def test_equal_budgets_and_no_variants() -> None:
    fleet = budget_histogram(np.full(3, 7.0), [])
    assert sum(fleet["counts"]) == 3
    assert fleet["served"] is None
