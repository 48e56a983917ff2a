from collections.abc import Callable

from fedfeast.studies.catalogue.rules import FEDERATED_NAS, NAS_ARMS, TRAINING_RULES
from fedfeast.studies.results import Results

MakeUp = Callable[..., Results]


def test_table_2_has_five_rules_at_five_anchors(make_up: MakeUp) -> None:
    findings = TRAINING_RULES.conclude(make_up(TRAINING_RULES, seeds=(0, 1)))
    (table,) = findings.tables
    assert [column.heading for column in table.columns] == ["25M", "50M", "229M", "408M", "596M"]
    assert len(table.rows) == 5
    assert [cell.paper for cell in table.rows[-1].cells] == [64.89, 65.60, 71.82, 71.94, 71.06]
    assert table.seeds == 2
    assert all(len(line.published) == 5 for line in findings.plots[0].lines)


def test_table_3_has_both_predecessors_with_and_without_budgets(make_up: MakeUp) -> None:
    (table,) = FEDERATED_NAS.conclude(make_up(FEDERATED_NAS)).tables
    rows = {row.label: [cell.paper for cell in row.cells] for row in table.rows}
    assert rows["SuperFedNAS, unconstrained"] == [1.05, 1.01, 0.92, 2.32, 5.19]
    assert rows["DeepFedNAS, constrained"] == [1.00, 1.09, 3.00, 10.86, 17.09]
    assert rows["FEAST"][-1] == 71.06


def test_only_constrained_transfers_have_the_allocation() -> None:
    settings = {arm.name: arm.settings for arm in NAS_ARMS}
    assert settings["superfednas, unconstrained"]["population.gamma"] == 0.0
    assert settings["superfednas, unconstrained"]["method.constrained"] is False
    assert "population.gamma" not in settings["deepfednas, constrained"]


def test_digits_have_anchors_of_their_own_and_nothing_published(make_up: MakeUp) -> None:
    (table,) = TRAINING_RULES.conclude(make_up(TRAINING_RULES, "digits")).tables
    assert [column.heading for column in table.columns] == ["128.3k", "347.3k", "1.154M", "1.777M", "4.975M"]
    assert not table.published
