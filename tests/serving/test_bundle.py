import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.serving.bundle import describe_bundle, extract, extract_affordable, load_bundle, read_bundle
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import BundleOptions, Extractor
from fedfeast.serving.latency import Latency, LatencyMeter
from fedfeast.serving.manifest import better_in_words, seal_of
from fedfeast.serving.verification import verify

ValidatedAs = Callable[..., fedfeast.Run]

LOAD = """
import sys
for name in ("fedfeast", "safetensors", "onnx"): sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import torch
from pathlib import Path
from model import load, read_weights
samples, model = read_weights(Path(sys.argv[1]) / "samples.safetensors"), load(sys.argv[1])
assert {one.dtype for one in model.parameters()} == {torch.float32}
with torch.no_grad(): assert torch.allclose(model(samples["images"]), samples["logits"], atol=1e-4)
"""
FILES = {"weights.safetensors", "samples.safetensors", "model.py", "network.py", "README.md", "curve.svg"}


def test_the_manifest_vouches_for_every_file(bundle: Path) -> None:
    manifest = read_bundle(bundle)
    assert manifest["bytes"] == (bundle / "weights.safetensors").stat().st_size
    assert set(manifest["sha256"]) == FILES == {file.name for file in bundle.iterdir()} - {"manifest.json"}
    assert "this network" in (bundle / "README.md").read_text()


def test_the_largest_affordable_network_by_macs_parameters_or_both(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=600e3))
    assert (manifest["macs"], manifest["parameters"], manifest["cached"]) == (545_920, 48_578, True)
    assert describe_bundle(manifest).startswith("545.9k MACs, 48,578 parameters, test accuracy ")
    masked = {**manifest, "masked": {"dense": {"macs": 2e6}}}
    assert "48,578 parameters kept of 2M MACs, test" in describe_bundle(masked)
    assert manifest == json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert extract(run, tmp_path / "one", Limits(max_parameters=40_000))["parameters"] == 38_898
    assert extract(run, tmp_path / "two", Limits(300e3, 40_000))["parameters"] == 15_954


def test_the_same_network_gives_the_same_bytes(run: fedfeast.Run, bundle: Path, tmp_path: Path) -> None:
    extract(run, tmp_path / "again", Limits(max_macs=200e3))
    for file in bundle.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_loaded_network_has_the_manifests_accuracy(run: fedfeast.Run, bundle: Path) -> None:
    test = run.federation.test.test
    with torch.no_grad():
        right = load_bundle(bundle)(test.inputs).argmax(1) == test.labels
    assert np.isclose(float(right.double().mean()), read_bundle(bundle)["test_accuracy"], atol=2 / len(test))


def test_others_may_read_it(bundle: Path) -> None:
    assert {oct(file.stat().st_mode & 0o777) for file in bundle.iterdir()} == {"0o644"}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_byte_is_refused(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=f"{name} does not match its hash"):
        load_bundle(bundle)


def test_a_missing_file_and_an_edited_manifest_are_refused(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "test_accuracy": 0.99}))
    with pytest.raises(InvalidInput, match="was changed after it was written"):
        load_bundle(bundle)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    (bundle / "weights.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"weights\.safetensors is missing"):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "fedfeast-bundle/1"}, "has the format 'fedfeast-bundle/1' and not 'fedfeast-bundle/2'"),
        ({"network": {"family": "other"}}, "network family 'other' is unknown"),
        ({"network": {"family": "elastic-resnet"}}, "does not fit its manifest"),
    ],
)
def test_a_manifest_of_something_else_is_refused(bundle: Path, change: dict[str, object], sentence: str) -> None:
    manifest = {**json.loads((bundle / "manifest.json").read_text()), **change}
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "seal": seal_of(manifest)}))
    with pytest.raises(InvalidInput, match=sentence):
        load_bundle(bundle)


def test_no_code_of_a_bundle_is_run(bundle: Path) -> None:
    for name in ("model.py", "network.py"):
        (bundle / name).write_text("raise SystemExit('run')")
    with pytest.raises(InvalidInput, match="does not match its hash"):
        load_bundle(bundle)


def test_no_bundle_no_run_and_no_overwriting(run: fedfeast.Run, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no bundle"):
        read_bundle(tmp_path)
    with pytest.raises(InvalidInput, match="not an empty folder"):
        extract(run, bundle, Limits(max_macs=600e3))
    with pytest.raises(InvalidInput, match="is no run folder"):
        extract(tmp_path, tmp_path / "other", Limits(max_macs=600e3))
    with pytest.raises(InvalidInput, match="no served variant fits 1000 MACs: the smallest has 128320 MACs"):
        extract(run, tmp_path / "other", Limits(max_macs=1000))
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_run_without_a_finished_round(tmp_path: Path) -> None:
    fedfeast.Run.create("digits", tmp_path / "run")
    with pytest.raises(InvalidInput, match="has no validated round yet: train on with fedfeast train"):
        extract(tmp_path / "run", tmp_path / "bundle", Limits(max_macs=600e3))


class GivenTimes(LatencyMeter):
    """Latencies that were not measured but made up."""

    def __init__(self, extractor: Extractor, milliseconds: list[float]) -> None:
        super().__init__(extractor)
        self._given = dict(zip(extractor.points, milliseconds, strict=True))

    def latency(self, point: OperatingPoint) -> Latency:
        return Latency(self._given[point], self._given[point], 30, 1, "made up", "0")


def test_the_choice_goes_by_the_given_times_and_the_manifest_says_so(
    extractor: Extractor, validated_as: ValidatedAs
) -> None:
    meter = GivenTimes(extractor, [1, 2, 3, 4, 9, 6, 7, 8])
    extracted, more = extract_affordable(extractor, Limits(max_latency_ms=6.5), meter=meter)
    assert extracted.point == extractor.points[5]
    assert more["latency"]["median_ms"] == 6
    extracted, _ = extract_affordable(extractor, Limits(max_macs=1.2e6, max_latency_ms=6.5), meter=meter)
    assert extracted.point == extractor.points[3]
    extracted, more = extract_affordable(extractor, Limits(max_macs=200e3), meter=meter)
    assert (extracted.point, more) == (extractor.points[0], {"chosen_by": "largest"})
    other = Extractor(validated_as(0.1, 0.2, 0.8, 0.7, 0.9, 0.6, 0.6, 0.6))
    meter = GivenTimes(other, [1, 2, 3, 4, 9, 6, 7, 8])
    extracted, more = extract_affordable(other, Limits(max_latency_ms=6.5), best=True, meter=meter)
    assert extracted.point == other.points[2], "the one that validates best of all takes 9 ms"
    assert (more["chosen_by"], more["latency"]["median_ms"]) == ("best", 3)


def test_a_smaller_network_that_validates_better_is_said_and_can_be_had(
    validated_as: ValidatedAs, tmp_path: Path
) -> None:
    run, limits = validated_as(0.25, 0.75, 0.5, 0.5), Limits(max_macs=600e3)
    manifest = extract(run, tmp_path / "largest", limits)
    assert (manifest["macs"], manifest["chosen_by"]) == (545_920, "largest")
    assert manifest["better"] == {
        "name": "257.3k",
        "macs": 257_344,
        "parameters": 15_954,
        "measured_on": "validation",
        "value": 0.75,
        "against": 0.5,
    }
    said = "the smaller network of 257.3k MACs has the better validation accuracy, 75.00 % against 50.00 %"
    assert better_in_words(manifest) == said
    assert f"Within the same limits {said}." in (tmp_path / "largest" / "README.md").read_text()
    manifest = extract(run, tmp_path / "best", limits, best=True)
    assert (manifest["macs"], manifest["chosen_by"], better_in_words(manifest)) == (257_344, "best", None)
    assert load_bundle(tmp_path / "best") is not None
    rising = extract(validated_as(0.1, 0.2, 0.3, 0.4), tmp_path / "rising", limits)
    assert "better" not in rising


def test_a_search_that_ends_below_the_served_network_says_so(validated_as: ValidatedAs, tmp_path: Path) -> None:
    run, limits = validated_as(0.0, 0.0, 1.0, 0.5), Limits(max_macs=600e3)
    manifest = extract(run, tmp_path / "searched", limits, search=True)
    assert manifest["chosen_by"] == "search"
    assert (manifest["better"]["macs"], manifest["better"]["value"]) == (347_264, 1.0)
    own = manifest["validation_accuracy"]
    assert better_in_words(manifest) == (
        f"the run's network of 347.3k MACs has the better validation accuracy, 100.00 % against {100 * own:.2f} %"
    )
    best = extract(run, tmp_path / "best", limits, search=True, best=True)
    assert (best["macs"], best["chosen_by"]) == (347_264, "best")
    run = validated_as(0.0, 0.0, 0.0, 0.0)
    for best_too in (False, True):
        manifest = extract(run, tmp_path / f"found-{best_too}", limits, search=True, best=best_too)
        assert (manifest["chosen_by"], manifest["cached"], "better" in manifest) == ("search", False, False)


def test_a_search_is_compared_with_what_is_measured_where_nothing_was_recorded(
    validated_as: ValidatedAs, tmp_path: Path
) -> None:
    run = validated_as()
    searched, more = extract_affordable(Extractor(run), Limits(max_macs=600e3), search=True)
    served = extract(run, tmp_path / "served", Limits(max_macs=600e3))
    assert served["accuracy_from"]["validation"] == "measured at extraction"
    below = served["validation_accuracy"] > searched.facts["validation_accuracy"]
    assert ("better" in more) == below


def test_a_bundle_in_float16_computes_in_float32_from_the_rounded_weights(
    run: fedfeast.Run, bundle: Path, tmp_path: Path
) -> None:
    options = BundleOptions(float16=True, drawn_samples=True)
    manifest = extract(run, tmp_path / "rounded", Limits(max_macs=200e3), options=options)
    assert manifest == read_bundle(tmp_path / "rounded")
    assert manifest["weights"] == "float16"
    assert "7,730 parameters in float16, test accuracy" in describe_bundle(manifest)
    assert manifest["bytes"] < 0.6 * read_bundle(bundle)["bytes"]
    assert "weights" not in read_bundle(bundle)
    before, after = load_bundle(bundle).network.state_dict(), load_bundle(tmp_path / "rounded").network.state_dict()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert torch.equal(after[name], tensor.half().to(tensor.dtype)), name
    assert verify(tmp_path / "rounded")[0]["largest_differences"] == {"torch": 0.0}
    card = (tmp_path / "rounded" / "README.md").read_text()
    for part in (
        "bytes, rounded to float16 (outputs of the samples moved by at most ",
        "(measured at extraction, after rounding to float16) |\n| validation",
        "The run's networks are those before rounding, in float32.",
        "These are inputs drawn at random with labels of zero, and no examples of the data.",
    ):
        assert part in card, part
    done = subprocess.run([sys.executable, "-c", LOAD, tmp_path / "rounded"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_better_network_was_compared_before_rounding(validated_as: ValidatedAs, tmp_path: Path) -> None:
    run, limits = validated_as(0.9, 0.2, 0.3, 0.4), Limits(max_macs=600e3)
    manifest = extract(run, tmp_path / "bundle", limits, options=BundleOptions(float16=True))
    words = better_in_words(manifest)
    assert words is not None
    assert words.endswith("90.00 % against 40.00 %, both before rounding to float16")
