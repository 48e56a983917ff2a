import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.exporting import ExportOptions
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families import standalone
from fedfeast.serving.ladder import Ladder, export_ladder, plan_rungs
from fedfeast.serving.manifest import seal_of

ValidatedAs = Callable[..., fedfeast.Run]


@pytest.fixture
def ladder(run: fedfeast.Run, tmp_path: Path) -> Path:
    export_ladder(run, tmp_path / "models", 3)
    return tmp_path / "models"


def test_the_index_says_what_each_budget_gets(run: fedfeast.Run, ladder: Path) -> None:
    opened = Ladder.open(ladder)
    assert [rung["macs"] for rung in opened.rungs] == [128_320, 1_154_496, 4_974_848]
    assert [rung["folder"] for rung in opened.rungs] == ["01-128.3k", "02-1.154M", "03-4.975M"]
    accuracies = {point.macs: point.accuracy for point in run.curve.points}
    for rung in opened.rungs:
        assert rung["test_accuracy"] == accuracies[rung["macs"]]
        assert (ladder / rung["folder"] / next(iter(rung["exports"]))).is_file()
    assert opened.index == json.loads((ladder / "ladder.json").read_text())


def test_one_way_to_load_it_with_and_without_the_package(ladder: Path) -> None:
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    for budget, parameters in ((2e5, 7_730), (2e6, 111_594), (1e9, 546_906)):
        alone, ours = standalone.load(ladder, max_macs=budget), Ladder.open(ladder).load(budget)
        assert sum(one.numel() for one in alone.parameters()) == parameters
        with torch.no_grad():
            assert torch.equal(alone(images), ours(images))
    assert standalone.choose_rung(ladder, None).name == "03-4.975M"
    assert (ladder / "model.py").read_text() == (ladder / "01-128.3k" / "model.py").read_text()
    with pytest.raises(InvalidInput, match="fits 5 MACs: the smallest has 128320 MACs"):
        Ladder.open(ladder).choose(5)


def test_budgets_share_a_network(extractor: Extractor) -> None:
    served = plan_rungs(extractor, [6e5, 2e5, 5.5e5, 1e9])
    assert [(point.macs, budgets) for point, budgets in served.items()] == [
        (128_320, [2e5]),
        (545_920, [5.5e5, 6e5]),
        (4_974_848, [1e9]),
    ]
    assert len(plan_rungs(extractor, 99)) == 8
    with pytest.raises(InvalidInput, match="no served variant fits 5 MACs"):
        plan_rungs(extractor, [5, 1e6])
    with pytest.raises(InvalidInput, match="--budgets is empty"):
        plan_rungs(extractor, [])
    with pytest.raises(InvalidInput, match=r"model.onnx is one file, and a ladder is a folder"):
        export_ladder(extractor.run, "model.onnx", 2)


def test_a_damaged_ladder_is_refused(ladder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no ladder"):
        Ladder.open(tmp_path)
    manifest = ladder / "02-1.154M" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("1154496", "1154497"))
    with pytest.raises(InvalidInput, match=r"manifest.json does not match its hash in the manifest: export the ladder"):
        Ladder.open(ladder)


def test_killed_between_files_it_leaves_nothing_and_can_be_written_again(run: fedfeast.Run, tmp_path: Path) -> None:
    out, partial = tmp_path / "models", tmp_path / ".models.partial"
    code = f"import fedfeast; fedfeast.export_ladder({str(run.folder.path)!r}, {str(out)!r}, 8)"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while not (partial / "02-257.3k").exists() and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert (partial / "01-128.3k" / "manifest.json").is_file(), "it was at work"
    assert not out.exists()
    export_ladder(run, out, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"models"}
    assert {path.name for path in out.iterdir()} == {"ladder.json", "model.py", "README.md", "01-128.3k", "02-4.975M"}
    fedfeast.verify(out)


def test_progress_is_told(run: fedfeast.Run, tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    export_ladder(
        run, tmp_path / "models", [2e5, 3e5], on_rung=lambda *parts: told.append((*parts[:2], parts[2]["macs"]))
    )
    assert told == [(1, 2, 128_320), (2, 2, 257_344)]


def test_the_best_for_every_budget(validated_as: ValidatedAs, tmp_path: Path) -> None:
    run = validated_as(0.2, 0.5, 0.4, 0.5, 0.6, 0.3, 0.8, 0.7)
    extractor = Extractor(run)
    improving = [place for place in range(8) if place in (0, 1, 3, 4, 6)]
    assert list(plan_rungs(extractor, 99, best=True)) == [extractor.points[place] for place in improving]
    assert plan_rungs(extractor, [4e5, 6e5, 1e9], best=True) == {
        extractor.points[1]: [4e5],
        extractor.points[3]: [6e5],
        extractor.points[6]: [1e9],
    }
    index = export_ladder(run, tmp_path / "models", [4e5, 6e5], ExportOptions(("pt2",)))
    assert ["better" in rung for rung in index["rungs"]] == [True, False]
    assert index["rungs"][0]["better"]["macs"] == extractor.points[1].macs
    index = export_ladder(run, tmp_path / "best", [4e5, 6e5], ExportOptions(("pt2",)), best=True)
    assert [rung["macs"] for rung in index["rungs"]] == [257_344, 545_920]
    assert not any("better" in rung for rung in index["rungs"])
    assert Ladder.open(tmp_path / "best").choose(4e5).name == "01-257.3k"


def test_a_small_ladder_and_its_card(run: fedfeast.Run, tmp_path: Path) -> None:
    small = ExportOptions(("safetensors",), float16=True, drawn_samples=True)
    index = export_ladder(run, tmp_path / "small", 3, small)
    assert [rung["weights"] for rung in index["rungs"]] == ["float16"] * 3
    assert [rung["exports"] for rung in index["rungs"]] == [{}] * 3
    card = (tmp_path / "small" / "README.md").read_text()
    assert "README.md" in index["sha256"]
    for rung in index["rungs"]:
        link = f"[{rung['folder']}]({rung['folder']}/README.md)"
        accuracy = f"{100 * rung['test_accuracy']:.2f} %"
        row = (link, f"{rung['macs']:,}", f"{rung['parameters']:,}", f"{rung['bytes']:,}", accuracy)
        assert f"| {' | '.join(row)} |" in card
    for file in (tmp_path / "small").rglob("*"):
        assert file.is_dir() or str(tmp_path).encode() not in file.read_bytes(), "no path of this machine"
    checked = fedfeast.verify(tmp_path / "small")
    assert [one["largest_differences"] for one in checked] == [{"torch": 0.0}] * 3
    model = Ladder.open(tmp_path / "small").load(2e6)
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    code = card.partition("```python\n")[2].partition("```")[0].replace("path/of/this/folder", str(tmp_path / "small"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "small", capture_output=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "small" / "README.md").write_text("mine")
    with pytest.raises(InvalidInput, match=r"README.md does not match its hash"):
        Ladder.open(tmp_path / "small")


def test_a_ladder_of_earlier_versions_has_no_card(ladder: Path) -> None:
    index = json.loads((ladder / "ladder.json").read_text())
    (ladder / "README.md").unlink()
    del index["sha256"]["README.md"]
    (ladder / "ladder.json").write_text(json.dumps({**index, "seal": seal_of(index)}))
    assert len(Ladder.open(ladder).rungs) == 3
    assert len(fedfeast.verify(ladder)) == 3
