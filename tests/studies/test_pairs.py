"""Arms in pairs: what is compared with what, over which units, and what is said of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import TINY

from fedfeast.data.tasks import task_named
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.studies import StudyOptions, StudyResult, conclude_study, plan_study, train_study
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.catalogue.allocation import GAMMA
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.pairs import EXAMPLES, NOTHING, compare_arms, describe_pairs, pairs_table
from fedfeast.studies.report import describe_result, notes_of, write_study_report
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import Findings, Study

BUDGETS = np.array([100.0, 100.0, 250.0])
ARMS = (method_arm("heterofl"), method_arm("feast"))
SMALL = Study("small", "Small", "A trial.", lambda resolve: ARMS, lambda results: Findings(()), datasets=("digits",))
OPTIONS = StudyOptions(rounds=2, settings={**TINY, "evaluation.every_rounds": 2})


def outcome(arm: Arm, seed: int, *values: float, metric: str = "classification") -> Outcome:
    points = tuple(CurvePoint(f"{place}", 100 * place, 10, value) for place, value in enumerate(values, start=1))
    recipe = load_recipe("digits", arm.settings)
    return Outcome(arm, seed, recipe, Curve(points, task_named(metric).metric), BUDGETS)


def results(*outcomes: Outcome) -> Results:
    return Results(load_recipe("digits"), outcomes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    plan = plan_study(SMALL, tmp_path_factory.mktemp("studies") / "small", OPTIONS)
    train_study(plan)
    return conclude_study(plan)


def test_seeds_alone_judge_made_up_curves() -> None:
    rival, feast = ARMS
    scores = ((0.5, 0.8), (0.52, 0.81), (0.49, 0.80))  # both points of FEAST, by seed
    made = [outcome(feast, seed, *values) for seed, values in enumerate(scores)]
    made += [outcome(rival, seed, low - 0.3, high - 0.1 - seed / 99) for seed, (low, high) in enumerate(scores)]
    (pair,) = compare_arms(results(*made))
    assert (pair.arm.name, pair.reference.name, pair.paired_over) == ("heterofl", "feast", NOTHING)
    assert pair.difference.mean == pytest.approx(-100 * (0.3 + 0.3 + 0.1 + 1 / 99) / 3)
    assert pair.verdict == "worse"
    assert (pair.clients_better, pair.clients_worse) == (0, 3)
    (other,) = compare_arms(results(*made), "heterofl")
    assert other.verdict == "better"
    assert other.difference.mean == pytest.approx(-pair.difference.mean)
    with pytest.raises(InvalidInput, match="no arm 'fedavg' to compare with: choose from feast, heterofl"):
        compare_arms(results(*made), "fedavg")


def test_one_seed_and_nothing_to_pair_over_is_not_judged() -> None:
    rival, feast = ARMS
    pairs = compare_arms(results(outcome(feast, 0, 0.5), outcome(rival, 0, 0.4)))
    assert pairs[0].verdict == "not judged"
    (sentence,) = describe_pairs(pairs)
    assert sentence.startswith("Not judged beside FEAST, with one seed and nothing to pair over (fedfeast evaluate")
    assert sentence.endswith(": HeteroFL.")


def test_where_less_is_better_a_gain_is_less() -> None:
    rival, feast = ARMS
    made = [outcome(feast, seed, 2.0 + seed / 100, metric="next-token") for seed in range(3)]
    made += [outcome(rival, seed, 1.5 + seed / 99, metric="next-token") for seed in range(3)]
    (pair,) = compare_arms(results(*made))
    assert pair.verdict == "better"
    assert pair.difference.mean == pytest.approx(0.5, abs=0.01)


def test_arms_are_compared_where_they_share_clients_and_data(make_up: Callable[..., Results]) -> None:
    pairs = compare_arms(make_up(GAMMA, seeds=(0, 1)))
    assert pairs
    for pair in pairs:
        assert pair.reference.settings["method.name"] == "feast"
        assert pair.arm.settings.get("population.gamma") == pair.reference.settings.get("population.gamma")
    named = pairs[0].arm.name
    assert {pair.reference.name for pair in compare_arms(make_up(GAMMA, seeds=(0, 1)), named)} == {named}


def test_a_run_keeps_which_examples_are_right(trained: StudyResult) -> None:
    for one in trained.results.outcomes:
        assert one.run is not None
        right = one.run.folder.kept_examples.load()
        assert right is not None
        assert right.mean(axis=1) == pytest.approx([point.value for point in one.curve.points])


def test_examples_are_paired_by_what_all_clients_are_served(trained: StudyResult) -> None:
    (pair,) = trained.pairs
    (rival,), (feast,) = trained.results.of("heterofl"), trained.results.of("feast")
    assert (pair.paired_over, pair.difference.units, pair.difference.seeds) == (EXAMPLES, 355, 1)
    assert pair.difference.mean == pytest.approx(rival.score - feast.score), "the score's difference exactly"

    def by_client(one: Outcome) -> np.ndarray:
        """Return the share of clients whose network has an example right, client by client."""
        assert one.run is not None
        right = one.run.folder.kept_examples.load()
        assert right is not None
        affordable = [sum(point.price <= budget for point in one.curve.points) for budget in one.budgets_macs]
        return np.asarray(np.mean([right[count - 1] if count else np.zeros(355) for count in affordable], axis=0))

    differences = 100 * (by_client(rival) - by_client(feast))
    assert pair.difference.error == pytest.approx(differences.std(ddof=1) / np.sqrt(355))
    generator = np.random.default_rng(0)
    drawn = [differences[generator.integers(355, size=355)].mean() for _ in range(2000)]
    assert pair.difference.error == pytest.approx(np.std(drawn), rel=0.1)


def test_the_report_says_which_differences_are_chance(trained: StudyResult) -> None:
    files = write_study_report(trained)
    page, content = files[0].read_text(), describe_result(trained, files)
    (pair,), (table,) = trained.pairs, trained.findings.tables
    assert table.rows[0].cells[-1].words == pair.verdict
    for part in ("Which differences are larger than chance", "paired over 355 test examples", pair.verdict):
        assert part in page
    assert content["pairs"][0]["verdict"] == pair.verdict
    assert content["tables"][0]["rows"][0]["cells"][-1]["ours"] == pair.verdict
    markdown = next(file for file in files if file.suffix == ".md").read_text()
    assert f"| {pair.verdict} |" in markdown
    assert any("HeteroFL" in note for note in content["notes"])
    assert any(
        note.startswith("One seed: ") and "--seeds 0,1,2 adds that, with 4 more" in note for note in notes_of(trained)
    )


def test_a_run_without_its_examples_is_paired_over_seeds_alone(trained: StudyResult, tmp_path: Path) -> None:
    (feast,) = trained.results.of("feast")
    assert feast.run is not None
    file = feast.run.folder.path / "test_examples.safetensors"
    kept = file.read_bytes()
    try:
        file.unlink()
        assert compare_arms(trained.results)[0].verdict == "not judged"
        file.write_bytes(kept[:40])
        with pytest.raises(InvalidInput, match=r"is damaged .* run fedfeast evaluate"):
            compare_arms(trained.results)
    finally:
        file.write_bytes(kept)
    Run.open(feast.run.folder.path).evaluate()
    assert file.read_bytes() == kept


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"population.greatest_macs": 160e3, "method.widths": (1.0,)}, "HeteroFL, seed 0: no client can afford"),
        ({"network.builder": "conv1d"}, "HeteroFL, seed 0: .*cannot train network.builder"),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2])
def test_what_cannot_be_trained_is_refused_by_its_name_before_anything_is(
    settings: dict[str, Any], sentence: str, at_once: int, tmp_path: Path
) -> None:
    own = {key: value for key, value in settings.items() if key.startswith("method.")}
    arms: Sequence[Arm] = (method_arm("feast"), method_arm("heterofl", own))
    study = Study("small", "", "", lambda resolve: arms, lambda results: Findings(()), datasets=("digits",))
    given = {key: value for key, value in settings.items() if key not in own}
    plan = plan_study(study, tmp_path / "small", StudyOptions(rounds=2, settings=given))
    with pytest.raises(InvalidInput, match=sentence):
        train_study(plan, at_once=at_once)
    assert not any(tmp_path.iterdir())


def test_every_method_is_set_beside_feast(make_up: Callable[..., Results]) -> None:
    made = make_up(DIGITS, "digits", (0, 1, 2))
    pairs = compare_arms(made)
    table = pairs_table(pairs, made)
    assert {pair.reference.name for pair in pairs} == {"feast"}
    assert len(table.rows) == len(made.arms) - 1
    assert table.columns[0].heading == "less FEAST"
    assert "paired over 3 seeds." in table.note
