"""Every study of the paper: what its table and plots say, on made-up outcomes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint, published
from fedfeast.planning import plan_recipe
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import count_examples
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.recipe import resolve_recipe
from fedfeast.studies import STUDIES, StudyOptions, find_study, plan_study
from fedfeast.studies.arms import method_arm
from fedfeast.studies.catalogue.allocation import GAMMA
from fedfeast.studies.catalogue.baselines import CURVES, DENSITY, EQUAL_COMPUTE, POPULATION, restrict
from fedfeast.studies.catalogue.costs import COMMUNICATION, FOOTPRINT, Costs, logical_pmacs
from fedfeast.studies.catalogue.coverage import COVERAGE, Coverage
from fedfeast.studies.catalogue.rules import FEDERATED_NAS, NAS_ARMS, TRAINING_RULES
from fedfeast.studies.catalogue.sensitivity import DIRICHLET_SENSITIVITY, ZIPF_SENSITIVITY
from fedfeast.studies.protocol import own_of_methods, refuse_disagreement
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import LETTER, Study
from fedfeast.studies.tables import Row, Table

MakeUp = Callable[..., Results]


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
        "coverage",
        "zipf-sensitivity",
        "dirichlet-sensitivity",
        "weighting",
        "local-epochs",
        "distillation",
        "cache-search",
        "baseline-presets",
        "backbones",
        "one-size",
        "digits-all",
        "natural",
        "plus",
    ]


OFFERED = [
    pytest.param(study, dataset, id=f"{study.name}, {dataset}")
    for study in STUDIES.values()
    for dataset in ("cifar100", LETTER, "digits")
    if dataset in study.datasets
]


@pytest.mark.parametrize(("study", "dataset"), OFFERED)
def test_definitions_resolve_and_agree_in_protocol(study: Study, dataset: str) -> None:
    options = StudyOptions(dataset)

    def resolve(settings: Mapping[str, Any]) -> Recipe:
        return options.recipe(study, settings)

    arms = study.arms(resolve)
    recipes = {arm.name: resolve(arm.settings) for arm in arms}
    assert len(recipes) == len(arms), "arms have names of their own"
    refuse_disagreement(recipes, (*study.varied, *own_of_methods(resolve({}))))


def test_an_unknown_name_is_answered_with_the_close_ones() -> None:
    assert find_study("footprint") is STUDIES["footprint"]
    with pytest.raises(InvalidInput, match=r"unknown study 'table1' \(did you mean 'table1-population'\?\)"):
        find_study("table1")
    with pytest.raises(InvalidInput, match="'dirichlet-sensitivity' or 'zipf-sensitivity'"):
        find_study("zirichlet-sensitivity")
    with pytest.raises(InvalidInput, match=r"unknown study 'xyz': choose one of table1-population, "):
        find_study("xyz")


def curve(**accuracies: float) -> Curve:
    return Curve(tuple(CurvePoint(name, int(name[1:]), 1, one) for name, one in accuracies.items()))


def columns_of(table: Table, row: int) -> dict[str, Any]:
    return {column.heading: cell for column, cell in zip(table.columns, table.rows[row].cells, strict=True)}


def shown(row: Row) -> list[float]:
    return [round(cell.ours.mean, 2) for cell in row.cells if cell.ours is not None]


def test_table_1_sets_scores_and_margin_beside_the_papers(make_up: MakeUp) -> None:
    results = make_up(POPULATION)
    population, wins, best = POPULATION.conclude(results).tables
    cells = columns_of(population, 0)
    assert [cell.paper for cell in cells.values()] == [41.50, 35.78, 55.13, 67.74, 12.61]
    scores = {name: cells[name].ours.mean for name in ("HeteroFL", "ScaleFL", "FIARSE", "FEAST")}
    assert scores["FEAST"] == pytest.approx(results.of("feast")[0].score)
    strongest = max(score for name, score in scores.items() if name != "FEAST")
    assert cells["FEAST's margin"].ours.mean == pytest.approx(scores["FEAST"] - strongest)
    assert "of 100" in wins.title
    assert all(0 < cell.ours.mean <= 100 for cell in columns_of(wins, 0).values())
    assert not wins.published
    for name, cell in columns_of(best, 0).items():
        assert cell.ours.mean >= scores[name], "the best affordable point is never worse than the largest"
    assert columns_of(best, 0)["FEAST"].ours.mean == pytest.approx(results.of("feast")[0].best_score)
    (plot,) = POPULATION.conclude(results).plots
    assert [line.label for line in plot.lines] == ["HeteroFL", "ScaleFL", "FIARSE", "FEAST"]
    assert len(plot.lines[-1].published) == 5


def test_the_papers_other_data_sets_have_their_own_numbers(make_up: MakeUp) -> None:
    population = POPULATION.conclude(make_up(POPULATION, "cinic10")).tables[0]
    assert columns_of(population, 0)["FEAST"].paper == 80.96


def test_figure_2_reads_the_curves(make_up: MakeUp) -> None:
    (table,) = CURVES.conclude(make_up(CURVES)).tables
    rows = {row.label: row.cells for row in table.rows}
    smallest, largest, best, change = rows["FEAST"]
    assert [cell.paper for cell in rows["FEAST"]] == [64.89, 71.06, 72.61, 6.17]
    assert smallest.ours is not None
    assert largest.ours is not None
    assert change.ours is not None
    assert best.ours == largest.ours
    assert change.ours.mean == pytest.approx(largest.ours.mean - smallest.ours.mean)
    assert rows["the baselines' least"][3].paper == 20.07
    assert rows["the baselines' greatest"][3].paper == 44.03


def test_baselines_get_the_rounds_that_feasts_compute_pays_for() -> None:
    cheap = {"method.name": "fedavg"}  # stands for every baseline

    def resolve(settings: Mapping[str, Any]) -> Recipe:
        return load_recipe("digits", settings if settings["method.name"] == "feast" else cheap)

    arms = {arm.name: arm for arm in EQUAL_COMPUTE.arms(resolve)}
    feast, baseline = (plan_recipe("digits", settings)["compute"]["training_pmacs"] for settings in ({}, cheap))
    assert arms["heterofl"].settings["training.rounds"] == round(60 * feast / baseline)
    assert arms["fiarse, logical match"].settings["method.name"] == "fiarse"
    assert arms["fiarse, logical match"].settings["training.rounds"] == round(
        60 * feast / logical_pmacs(outline(resolve(cheap)))
    )
    assert "training.rounds" not in arms["feast"].settings


def test_equal_compute_leads_and_wins(make_up: MakeUp) -> None:
    (table,) = EQUAL_COMPUTE.conclude(make_up(EQUAL_COMPUTE)).tables
    rows = {row.label: row.cells for row in table.rows}
    assert [cell.paper for cell in rows["HeteroFL"]] == [None, None, 44.44, 23.3, 100.0]
    assert rows["FEAST"][2].paper == 67.74
    assert rows["FEAST"][3].ours is None
    assert all(cell.paper is None for cell in rows["FIARSE, logical match"])
    dense, logical = (rows[name][0].ours for name in ("FIARSE", "FIARSE, logical match"))
    assert dense is not None
    assert logical is not None
    assert (dense.mean, logical.mean) == (4159, 6523), "a dense pass costs more, so fewer rounds match"


def test_density_keeps_the_largest_point_within_each_tiers_least_budget() -> None:
    feast = curve(m10=0.5, m20=0.6, m30=0.7, m40=0.8, m50=0.9)
    baseline = curve(m5=0.1, m25=0.2, m45=0.3)
    budgets = np.array([12.0, 24.0, 31.0, 44.0, 60.0])
    # Tiers begin at budgets of 12, 31 and 60: FEAST keeps 10, 30 and 50.
    assert [point.macs for point in restrict(feast, baseline, budgets).points] == [10, 30, 50]
    # A tier that serves nobody, and clients that the baseline leaves out, keep nothing.
    assert [point.macs for point in restrict(feast, baseline, np.array([2.0, 12.0, 60.0])).points] == [10, 50]


def test_density_in_numbers(make_up: MakeUp) -> None:
    results = make_up(DENSITY)
    (table,) = DENSITY.conclude(results).tables
    for row, baseline in ((0, "heterofl"), (1, "scalefl")):
        cells = columns_of(table, row)
        feast, other = results.of("feast")[0], results.of(baseline)[0]
        restricted = 100 * restrict(feast.curve, other.curve, feast.budgets_macs).population_score(feast.budgets_macs)
        assert cells["FEAST, restricted (%)"].ours.mean == pytest.approx(restricted)
        assert cells["full cache adds"].ours.mean == pytest.approx(feast.score - restricted)
        kept = 100 * (restricted - other.score) / (feast.score - other.score)
        assert cells["margin kept (%)"].ours.mean == pytest.approx(kept)
    assert columns_of(table, 0)["full cache adds"].paper == 1.08
    assert columns_of(table, 1)["margin kept (%)"].paper == 98.0


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


def test_unconstrained_transfers_divide_data_as_the_authors_did() -> None:
    recipe = StudyOptions(LETTER).recipe(FEDERATED_NAS, NAS_ARMS[1].settings)
    sizes = count_examples(outline(recipe))
    assert (sizes.min(), sizes.max(), sizes.sum()) == (196, 638, 45_000)


def test_digits_have_anchors_of_their_own_and_nothing_published(make_up: MakeUp) -> None:
    (table,) = TRAINING_RULES.conclude(make_up(TRAINING_RULES, "digits")).tables
    assert [column.heading for column in table.columns] == ["128.3k", "347.3k", "1.154M", "1.777M", "4.975M"]
    assert not table.published


def test_figure_1_sweeps_gamma(make_up: MakeUp) -> None:
    results = make_up(GAMMA, seeds=(0, 1))
    assert len(results.arms) == 5 + 3 * 2
    findings = GAMMA.conclude(results)
    largest, leads, gaps = findings.tables
    rows = {row.label: row.cells for row in largest.rows}
    assert [cell.paper for cell in rows["FEAST"]] == [58.96, 63.79, 65.76, 71.06, 74.83, 12.10]
    assert [cell.paper for cell in rows["HeteroFL"]] == [None, None, None, None, None, 20.66]
    assert rows["HeteroFL"][1].ours is None, "the baselines have gamma 0 and 1 alone"
    first, last, gain = (rows["FEAST"][position].ours for position in (0, 3, 5))
    assert first is not None
    assert last is not None
    assert gain is not None
    assert gain.mean == pytest.approx(last.mean - first.mean)
    assert [row.cells[0].paper for row in leads.rows] == [6.22, 2.41]
    of_feast = gaps.rows[0].cells
    assert [cell.paper for cell in of_feast] == [-4.29, None, None, 6.17, None]
    (ours,) = {cell.ours.count for cell in of_feast if cell.ours is not None}
    assert ours == 2, "a gap a seed"
    at_zero = results.of("feast, gamma 0")
    expected = np.mean([outcome.largest - outcome.smallest for outcome in at_zero])
    assert of_feast[0].ours is not None
    assert of_feast[0].ours.mean == pytest.approx(expected)
    assert gaps.rows[1].cells[1].ours is None
    by_method, graded = findings.plots
    assert [line.dashed for line in by_method.lines[:2]] == [False, True]
    assert all(point.macs >= results.cached_macs[0] for line in by_method.lines for point in line.points)
    assert graded.graded
    assert len(graded.lines) == 5


def test_communication_of_the_papers_federation(make_up: MakeUp) -> None:
    (table,) = COMMUNICATION.conclude(make_up(COMMUNICATION)).tables
    cells = table.rows[0].cells
    assert [cell.paper for cell in cells] == [55.68, 8.17, 6.8, 43.8, 22.9, 111.0]
    ours = [cell.ours.mean for cell in cells if cell.ours is not None]
    assert ours == pytest.approx([55.68, 7.74, 7.19, 52.81, 26.32, 111.45], abs=0.01)


def test_footprint_of_the_papers_federation(make_up: MakeUp) -> None:
    table, sent, served, clients = FOOTPRINT.conclude(make_up(FOOTPRINT)).tables
    rows = {row.label: row.cells for row in table.rows}
    feast = [cell.ours and round(cell.ours.mean, 2) for cell in rows["FEAST"]]
    assert feast == [36.35, 11.78, 31.19, None]
    assert [cell.paper for cell in rows["FEAST"]] == [35.60, 11.78, 31.01, None]
    alone = rows["FEAST, largest variant alone"][3]
    assert alone.ours is not None
    assert alone.ours.mean == pytest.approx(1.59, abs=0.005)
    assert alone.paper == 1.56
    assert rows["ScaleFL"][3].paper == 2.04
    assert (rows["the baselines' least"][0].paper, rows["the baselines' greatest"][0].paper) == (11.22, 11.27)
    logical = rows["FIARSE, if masks saved computing"][2]
    assert logical.ours is not None
    assert logical.ours.mean == pytest.approx(19.13, abs=0.01)
    assert logical.paper == 19.12
    assert shown(sent.rows[0]) == [0.50, 2.02, 13.65, 26.26, 36.35]
    assert shown(served.rows[0]) == [0.34, 0.99, 3.85, 9.89, 11.78]
    assert shown(sent.rows[1]) == [0.18, 0.71, 2.82, 2.82, 11.22], "HeteroFL sends what it serves"
    assert [cell.paper for cell in sent.rows[0].cells] == [None] * 4 + [35.60]
    assert shown(clients.rows[0]) == [1.00, 1.63, 1.54, 2.21]
    assert [cell.paper for cell in clients.rows[0].cells] == [1.00, None, None, 2.34]


def test_footprint_to_the_letter_is_the_published_one() -> None:
    """Counted as the authors count, all of FEAST's figures are theirs."""
    options = StudyOptions(LETTER)
    feast, authors = options.recipe(FOOTPRINT, method_arm("feast").settings), options.recipe(FOOTPRINT, {})
    arm = method_arm("feast")
    results = Results(authors, (Outcome(arm, 0, feast),))
    costs = Costs.of(feast)
    assert costs.stated is not None
    assert (round(costs.stated["training_pmacs"], 2), round(costs.stated["single_variant_pmacs"], 2)) == (31.01, 19.86)
    ratios = costs.client_ratios()
    assert (round(ratios.min(), 2), round(ratios.max(), 2)) == published.CLIENT_COMPUTE["cifar100"]
    budgets = [anchor.budget_macs for anchor in results.anchors]
    assert [round(one, 2) for one in costs.sent_within(budgets).values()] == [0.50, 2.41, 10.02, 20.61, 35.60]
    fiarse = options.recipe(FOOTPRINT, {**method_arm("fiarse").settings, "population.least_macs": 25e6})
    assert round(logical_pmacs(outline(fiarse)), 2) == published.BASELINE_PMACS["cifar100"]["fiarse, logical"]


def test_methods_to_the_letter_are_the_authors() -> None:
    options = StudyOptions(LETTER)
    heterofl = options.recipe(POPULATION, method_arm("heterofl").settings)
    assert heterofl.settings()["method.scaler"] == "after-activation"
    assert heterofl.evaluation.selection == "largest"
    feast = options.recipe(POPULATION, method_arm("feast").settings)
    assert feast.evaluation.selection == "anchors"
    nas = options.recipe(FEDERATED_NAS, NAS_ARMS[2].settings)
    assert nas.settings()["method.last_weight"] == 0.125
    plan = plan_study(POPULATION, Path("nowhere"), options)
    assert len(plan.runs) == 4, "runs that differ by the letter alone may be compared"


def test_pi_and_psi_of_the_authors_population_are_the_published_ones() -> None:
    recipe = StudyOptions(LETTER, settings={"population.least_macs": 25e6}).recipe(COVERAGE, {})
    scales = Coverage.of(recipe).scales
    assert len(scales) == published.NESTED_ENVELOPES["cifar100"]
    routers = [one.num_routers for one in scales]
    assert (routers[0], routers[-1]) == published.ROUTED_CLIENTS["cifar100"]
    assert (round(scales[0].coverage, 5), scales[-1].coverage) == published.ENVELOPE_COVERAGE["cifar100"]
    psi = [one.scale for one in scales]
    assert (round(min(psi), 3), round(max(psi), 3)) == published.ENVELOPE_SCALES["cifar100"]
    assert min(psi) == psi[-1], "psi is least where everybody shares a position"


def test_coverage_of_the_papers_federation(make_up: MakeUp) -> None:
    summary, envelopes = COVERAGE.conclude(make_up(COVERAGE, seeds=(0, 1))).tables
    assert [cell.paper for cell in summary.rows[0].cells] == [21.0, 11.0, 0.70624, 16.207]
    assert [cell.paper for cell in summary.rows[1].cells] == [21.0, 100.0, 1.0, 21.482]
    assert len(envelopes.rows) == 20
    assert envelopes.rows[0].label == "from 576.9M"
    assert shown(envelopes.rows[-1]) == [100, 1.0, 1.0, 16.21]


def test_every_exponent_has_a_population_and_the_papers_is_one_of_them() -> None:
    def resolve_with(recipe: str) -> Callable[[Mapping[str, Any]], Recipe]:
        return lambda settings: load_recipe(recipe, settings)

    arms = {arm.name: arm.settings for arm in ZIPF_SENSITIVITY.arms(resolve_with("cifar100-paper"))}
    assert len(arms) == 8
    assert arms["feast, s 0.8"]["population.exponent"] == 0.8
    assert arms["feast, s 1.2"] == {"method.name": "feast"}
    letter = load_recipe("cifar100-short", {"population.source": "authors"})
    theirs = {
        arm.name: arm.settings for arm in ZIPF_SENSITIVITY.arms(lambda settings: resolve_recipe(letter, settings))
    }
    assert theirs["feast, s 1.2"] == {"method.name": "feast"}
    assert theirs["feast, s 0.8"] == {"method.name": "feast", "population.exponent": 0.8}
    drawn = {arm.name: arm.settings for arm in ZIPF_SENSITIVITY.arms(resolve_with("digits"))}
    assert drawn["feast, s 1.2"]["population.exponent"] == 1.2


def test_zipf_at_the_anchors(make_up: MakeUp) -> None:
    anchors, extremes = ZIPF_SENSITIVITY.conclude(make_up(ZIPF_SENSITIVITY)).tables
    papers = {row.label: [cell.paper for cell in row.cells] for row in anchors.rows}
    assert papers["FEAST, s 1.2"][:5] == [64.89, 65.60, 71.82, 71.94, 71.06]
    assert papers["FEAST, s 0.8"] == [None] * 6
    assert [cell.paper for cell in extremes.rows[0].cells] == [70.29, 74.54]
    assert extremes.rows[0].cells[0].ours == extremes.rows[0].cells[1].ours, "made up without effect of s"


def test_dirichlet_changes_and_wins(make_up: MakeUp) -> None:
    results = make_up(DIRICHLET_SENSITIVITY)
    findings = DIRICHLET_SENSITIVITY.conclude(results)
    anchors, extremes, wins = findings.tables
    assert len(anchors.rows) == 8
    assert [row.label for row in anchors.rows[:4]] == [f"FEAST, alpha_eff {one}" for one in (0.225, 0.45, 1.35, 4.5)]
    assert anchors.rows[1].cells[0].paper == 64.89
    first, *_, last, change = anchors.rows[0].cells
    assert change.ours is not None
    assert first.ours is not None
    assert last.ours is not None
    assert change.ours.mean == pytest.approx(last.ours.mean - first.ours.mean)
    assert [[cell.paper for cell in row.cells] for row in extremes.rows] == [[5.77, 7.37], [21.25, 23.25]]
    (won,) = wins.rows[0].cells
    better = sum(
        feast.ours.mean > baseline.ours.mean  # type: ignore[union-attr]
        for feasts, baselines in zip(anchors.rows[:4], anchors.rows[4:], strict=True)
        for feast, baseline in zip(feasts.cells[:5], baselines.cells[:5], strict=True)
    )
    assert won.ours is not None
    assert won.ours.mean == better
    assert won.paper == 20.0
    assert "of 20" in wins.title
    assert [line.dashed for line in findings.plots[0].lines] == [False] * 4 + [True] * 4
