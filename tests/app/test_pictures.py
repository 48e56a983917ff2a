from pathlib import Path

from PIL import Image

from fedfeast.app.pictures import draw_curves
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.runs import Run, load_recipe
from fedfeast.runs.folder import RunFolder


def test_curves_of_several_runs_in_one_picture(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        folder = RunFolder.create(tmp_path / name, load_recipe("digits"), threads=1, device="cpu")
        folder.write_clients({"budget_macs": [500.0, 1500.0, 9000.0]})
        folder.write_summary({"method": name}, Curve((CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75))))
        runs.append(Run(folder))
    draw_curves(runs, tmp_path / "curve.svg")
    text = (tmp_path / "curve.svg").read_text()
    for label in (
        "digits, one: population score 41.7 %",
        "digits, two",
        "test accuracy (%)",
        "MACs per example",
    ):
        assert label in text
    draw_curves(runs[:1], tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.width > 1000
