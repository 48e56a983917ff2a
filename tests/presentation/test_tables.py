import io
from pathlib import Path

from rich.console import Console

from fedfeast.evaluation import ClientWins, Curve, CurvePoint
from fedfeast.presentation.tables import print_summary
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder


def test_the_table_says_who_is_served_by_what(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", load_recipe("digits"), threads=1, device="cpu")
    folder.write_clients({"budget_macs": [500, 1500, 1600, 9000]})
    curve = Curve((CurvePoint("1k", 1000, 12_345, 0.5), CurvePoint("2k", 2000, 20, 0.75)))
    numbers = {
        "recipe": "digits",
        "method": "feast",
        "finished_rounds": 3,
        "best_round": 2,
        "population_score": 0.4375,
        "served_share": 0.75,
        "clients": 4,
        "training_seconds": 1.0,
        "partition": {"smallest_shard": 3, "largest_shard": 9, "share_correlation": 0.9876, "moved_examples": 2},
        "traffic": {"reduction": 3.5, "mean_payload_parameters": 100.0, "supernet_parameters": 350},
    }
    folder.write_summary(numbers, curve)
    stream = io.StringIO()
    print_summary(Run(folder), Path("a[/b]/curve.png"), ClientWins(3, 1, 0), Console(file=stream, width=110))
    text = stream.getvalue()
    for part in (
        "12,345",
        "50.00 %",
        "43.75 %",
        "75.0 %; the others count as 0 %",
        "3.50x",
        "3 to 9 examples",
        "0.988 correlated",
        "2 examples moved",
        "3 better, 1 equal",
        "a[/b]/curve.png",
    ):
        assert part in text
    rows = [line.split("│") for line in text.splitlines() if "%" in line and "│" in line]
    assert [row[5].strip() for row in rows] == ["2", "1"]
