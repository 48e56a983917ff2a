import json
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.latency import REPEATS, WARM_UPS, LatencyMeter
from fedfeast.serving.measuring import TURNS, Timing, measure_device, suggest_budget


def timing(macs: int, milliseconds: float) -> Timing:
    return Timing(str(macs), macs, 10, milliseconds, (milliseconds, milliseconds), 3)


TIMINGS = [timing(100, 1.0), timing(200, 3.0), timing(300, 2.0), timing(400, 5.0)]
SERVED = [100, 150, 200, 300, 400]


@pytest.mark.parametrize(
    ("target", "budget", "served"),
    [(1.0, 100, 100), (1.5, 150, 150), (2.0, 300, 300), (3.5, 350, 300), (5.0, 400, 400), (99.0, 400, 400)],
)
def test_a_budget_lies_on_the_line_between_measured_sizes(target: float, budget: int, served: int) -> None:
    got = suggest_budget(TIMINGS, SERVED, target)
    assert got == {"target_milliseconds": target, "budget_macs": budget, "served_macs": served}


def test_a_burst_that_slows_the_small_sizes_does_not_take_their_budget_away() -> None:
    disturbed = [timing(100, 40.0), timing(200, 30.0), timing(300, 2.0), timing(400, 5.0)]
    assert suggest_budget(disturbed, SERVED, 2.0)["budget_macs"] == 300


def test_a_latency_below_the_smallest_network_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"--target-ms 0.5: the smallest network takes 1 ms here \(100 MACs\)"):
        suggest_budget(TIMINGS, SERVED, 0.5)


def test_a_latency_that_no_network_keeps_leaves_what_was_measured() -> None:
    measured = measure_device("digits", target_milliseconds=1e-9, threads=1, num_variants=2)
    assert len(measured["variants"]) == 2
    assert measured["refused"].startswith("--target-ms 1e-09: the smallest network takes ")
    assert "suggestion" not in measured


@pytest.mark.parametrize("settings", [{}, {"method.name": "heterofl"}, {"data.name": "cifar100"}])
def test_every_recipe_is_measured_without_data(settings: dict[str, str]) -> None:
    recipe = "cifar100-paper" if "data.name" in settings else "digits"
    before = torch.get_num_threads()
    seen: list[Timing] = []
    measured = measure_device(
        recipe, settings, 1e6, threads=1, num_variants=2, on_timed=lambda timing, total: seen.append(timing)
    )
    assert torch.get_num_threads() == before
    assert measured["threads"] == 1
    macs = [one["macs"] for one in measured["variants"]]
    assert macs == sorted(macs)
    assert [one.macs for one in seen] == macs * TURNS
    assert [one.repeats for one in seen[-2:]] == [one["repeats"] for one in measured["variants"]]
    assert measured["suggestion"]["budget_macs"] == measured["suggestion"]["served_macs"] == macs[-1]
    assert measured["peak_memory_megabytes"] > 10
    for one in measured["variants"]:
        assert one["fastest_milliseconds"] <= one["milliseconds"] <= one["slowest_milliseconds"]
        assert one["macs_per_second"] == pytest.approx(1e3 * one["macs"] / one["milliseconds"])
    json.dumps(measured)


class Recorded(onnxruntime.InferenceSession):  # type: ignore[misc] # the package has no types
    """onnxruntime's own session, which remembers how it was made and what it was asked."""

    made: list["Recorded"]

    def __init__(self, content: bytes, options: Any, **more: Any) -> None:
        super().__init__(content, options, **more)
        graph = onnx.load_from_string(content).graph
        nodes = [(node.op_type, *map(str, node.attribute)) for node in graph.node]
        sizes = [(one.name, *one.dims) for one in graph.initializer]  # the values do not change the time
        self.network = nodes, sizes, [str(one) for one in (*graph.input, *graph.output)]
        self.options = options.intra_op_num_threads, options.inter_op_num_threads, self.get_providers()
        self.asked: list[tuple[Any, ...]] = []
        self.made.append(self)

    def run(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        self.asked.append((outputs, *((name, one.dtype, one.tolist()) for name, one in inputs.items())))
        return super().run(outputs, inputs)


@pytest.mark.parametrize("threads", [None, 1])
def test_what_is_measured_is_what_extract_measures(
    extractor: Extractor, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", Recorded)
    made: dict[str, list[Recorded]] = {}
    monkeypatch.setattr(Recorded, "made", made.setdefault("measure", []), raising=False)
    measured = measure_device(extractor.run.recipe, threads=threads, num_variants=len(extractor.points))
    assert measured["runtime"] == f"onnxruntime {onnxruntime.__version__}"
    assert [one["repeats"] for one in measured["variants"]] == [REPEATS] * len(extractor.points)
    monkeypatch.setattr(Recorded, "made", made.setdefault("extract", []))
    meter = LatencyMeter(extractor, threads)
    assert {meter.latency(point).threads for point in extractor.points} == {measured["threads"]}
    assert len(made["measure"]) == len(extractor.points)
    for mine, other in zip(made["measure"], made["extract"], strict=True):
        assert mine.network == other.network
        assert mine.options == other.options
        assert mine.asked == other.asked
        assert len(mine.asked) == WARM_UPS + REPEATS


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_export_extra_eager_torch_is_measured(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    before = torch.get_num_threads()
    measured = measure_device("digits", {"engine.threads": 1}, num_variants=2)
    assert measured["runtime"] == f"eager torch {torch.__version__}"
    assert (measured["threads"], torch.get_num_threads()) == (1, before)
    assert all(3 <= one["repeats"] <= 15 for one in measured["variants"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target_milliseconds": -1.0}, "--target-ms -1"),
        ({"target_milliseconds": float("nan")}, "--target-ms nan"),
        ({"num_variants": 1}, "--variants 1"),
        ({"threads": 0}, "--threads 0"),
    ],
)
def test_bad_options_are_said(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        measure_device("digits", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["", "onnxscript"])
def test_own_networks_are_measured_as_they_are_served(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nfrom fedfeast.networks.built import elastic\n\n\n@elastic(width=[2, 4])\n"
        "def own(width, *, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, classes))\n"
    )
    if package:
        monkeypatch.setitem(sys.modules, package, None)
    settings = {"network.builder": f"{tmp_path / 'mine.py'}:own", "variants.cache": "members", "engine.threads": 1}
    measured = measure_device("digits", settings, num_variants=2)
    assert measured["runtime"].startswith("eager torch" if package else "onnxruntime")
    assert [one["macs"] for one in measured["variants"]] == [2 * 74, 4 * 74]
