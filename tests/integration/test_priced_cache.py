"""A cache with prices and a network that stands in it twice, from the plan to what a device gets."""

import csv
from pathlib import Path
from typing import Any

import pytest
from tiny import CACHE_FILE, TINY

from fedfeast import Run, extract, plan, train
from fedfeast.errors import InvalidInput
from fedfeast.evaluation.passes.recalibration import recalibrate
from fedfeast.presentation.report import write_report
from fedfeast.presentation.tables import describe_run
from fedfeast.recipes import load_recipe
from fedfeast.server.offer import Offer
from fedfeast.serving.bundle_cache import BundleCache
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.ladder import Ladder, export_ladder

# By true MACs 112k, 178k, 389k, 389k, 530k: the second one costs more than its price says, the last one less.
PRICES = (112_288, 150_000, 300_000, 300_000, 600_000)


def write_cache(path: Path) -> Path:
    """Write the tiny cache with its third network twice and a price for every row."""
    with CACHE_FILE.open(newline="") as file:
        header, *rows = csv.reader(file)
    rows.insert(3, rows[2])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "price", "stated"])
        writer.writerows([*row, price, price - 288] for row, price in zip(rows, PRICES, strict=True))
    return path


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A tiny run that is chosen by two anchors and recalibrated on augmented images."""
    return {
        **TINY,
        "variants.cache": str(write_cache(tmp_path_factory.mktemp("caches") / "priced.csv")),
        "variants.ties": "keep",
        "training.rounds": 3,
        "training.clients_per_round": 4,
        "evaluation.every_rounds": 1,
        "evaluation.selection": "anchors",
        "evaluation.anchors": [0, 600e3],
        "evaluation.calibration_augmented": True,
        "evaluation.calibration_batch": 16,
        "augmentation.crop_padding": 1,
    }


@pytest.fixture(scope="module")
def run(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("digits", tmp_path_factory.mktemp("runs") / "priced", settings)


def test_the_plan_compares_budgets_with_prices(settings: dict[str, Any]) -> None:
    told = plan("digits", settings)
    assert told["variants"]["count"] == 5
    assert (told["variants"]["macs_max"], told["variants"]["price_max"]) == (529_648, 600_000)
    for level in told["levels"]:
        assert level["largest_price"] == PRICES[level["affordable_variants"] - 1]
        assert level["budget_macs"][0] >= level["largest_price"]
    assert 3 not in {level["affordable_variants"] for level in told["levels"]}, "a tie is afforded as a whole"
    assert sum(told["clients"]["by_variants"].values()) == told["clients"]["participating"]
    assert told["clients"]["beyond_budget"]["any"] > 0
    assert told["selection"] == {"rule": "anchors", "figure": "mean of 2 anchors", "points": ["112.3k", "600k"]}
    assert told["compute"]["stated"]["training_pmacs"] < told["compute"]["realized_training_pmacs"]


def test_the_round_is_chosen_by_its_anchors(run: Run) -> None:
    rows = run.folder.metrics()
    best = max(rows, key=lambda row: row["validation_score"])
    assert run.summary["best_round"] == best["round"]
    values = {row["name"]: row["value"] for row in run.summary["validation_curve"]}
    assert run.summary["validation_score"] == pytest.approx((values["112.3k"] + values["600k"]) / 2)


def test_the_summary_has_prices_and_both_population_scores(run: Run) -> None:
    summary, budgets = run.summary, run.folder.budgets_macs()
    assert [row["price"] for row in summary["curve"]] == list(PRICES)
    assert [row["name"] for row in summary["curve"]] == ["112.3k", "150k", "300k", "300k-2", "600k"]
    values = [row["value"] for row in summary["curve"]]
    assert values[2] == values[3], "the same network twice"
    best = [max(value for value, price in zip(values, PRICES, strict=True) if price <= budget) for budget in budgets]
    assert summary["population_score_best"] == run.population_score_best == pytest.approx(sum(best) / len(best))
    assert summary["population_score_best"] >= summary["population_score"]


def test_statistics_are_measured_as_the_recipe_says(run: Run, settings: dict[str, Any]) -> None:
    evaluator = run.federation.test
    clean = Run.create(
        "digits", run.folder.path.parent / "clean", settings | {"evaluation.calibration_augmented": False}
    )
    assert not (evaluator.calibration.inputs == clean.federation.test.calibration.inputs).all()
    assert evaluator.calibration_batch == 16
    extractor = Extractor(run)
    deployed = run.federation.method.deploy(run.best().flat, extractor.points[0])
    expected = recalibrate(deployed, evaluator.calibration, evaluator.normalisation, 16)
    served = extractor.extract(extractor.points[0]).tensors["stem.norm.running_mean"]
    assert served.tolist() == expected["stem.norm"][0].tolist()


def test_a_device_gets_what_its_budget_pays_for(run: Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=160e3))
    assert (manifest["price"], manifest["macs"]) == (150_000, 177_904)
    assert "150,000" in (tmp_path / "bundle" / "README.md").read_text()
    export_ladder(run, tmp_path / "ladder", [120e3, 160e3])
    assert Ladder.open(tmp_path / "ladder").choose(170e3).name == "02-150k"
    offer = Offer(BundleCache(run), "priced", tmp_path / "latency.json")
    assert len(offer.by_id) == 5
    assert offer.by_id[offer.choose(Limits(max_macs=160e3))].price == 150_000


def test_tables_and_reports_show_both(run: Run, tmp_path: Path) -> None:
    table, *facts = describe_run({**run.summary, "picture": ""}, run.folder.budgets_macs())
    headings = [column.header for column in table.columns]  # type: ignore[union-attr]
    assert headings[1:3] == ["MACs, as priced", "true MACs"]
    assert any(str(fact).startswith("by the best") for fact in facts)
    page = tmp_path / "report.html"
    write_report([run], page)
    assert "MACs, as priced" in page.read_text()
    assert "with the best variant each affords" in page.read_text()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"variants.ties": "refuse"}, r"two variants cost 300000 MACs: keep one"),
        ({"evaluation.anchors": [0, 7]}, r"evaluation.anchors has 7, and there are 5 networks"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    settings: dict[str, Any], changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for verb in (plan, lambda *given: train(given[0], tmp_path / "none", given[1])):
        with pytest.raises(InvalidInput, match=message):
            verb("digits", settings | changed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"selection": "anchors"}, "needs evaluation.anchors"),
        (
            {"anchors": [0]},
            r"evaluation.anchors = \(0.0,\) has no effect with evaluation.selection = 'population-score'",
        ),
        ({"selection": "anchors", "anchors": [-1]}, r"anchors = \[-1.0\]: give rows from 0 on"),
        ({"selection": "largest", "score": "best"}, "evaluation.score = 'best' has no effect"),
        ({"selection": "largest", "by": "clients"}, "evaluation.selection = 'largest' needs the server's examples"),
        (
            {"calibration_augmented": True, "by": "clients"},
            "evaluation.calibration_augmented = True needs the server's",
        ),
        ({"calibration_batch": 1}, "evaluation.calibration_batch = 1"),
        ({"selection": "smallest"}, "evaluation.selection = 'smallest'"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_recipe("digits", {f"evaluation.{key}": value for key, value in given.items()})
