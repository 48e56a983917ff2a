import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from run_files import forget_sizes

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Evaluator, measure_totals
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import DRAWN_AS_ASKED, MEASURED, MEASURED_ROUNDED, RECORDED, BundleOptions, Extractor
from fedfeast.serving.support import TrainedSupport, trained_architectures

ValidatedAs = Callable[..., fedfeast.Run]
SHORT = {
    "training.rounds": 2,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 1,
    "population.greatest_macs": 2e6,
}


def test_a_cached_network_has_the_accuracies_of_the_runs_evaluation(extractor: Extractor) -> None:
    point = extractor.points[3]
    extracted = extractor.extract(point)
    facts = extracted.facts
    assert facts["test_accuracy"] == extractor.run.curve.points[3].accuracy
    federation = extractor.run.federation
    deployed = federation.method.deploy(extractor.run.best().flat, point)
    assert isinstance(federation.validation, Evaluator)
    assert facts["validation_accuracy"] == federation.validation.figures(deployed)["accuracy"]
    assert facts["accuracy_from"] == {"test": RECORDED, "validation": RECORDED}
    assert (facts["macs"], facts["parameters"], facts["cached"]) == (545_920, 48_578, True)
    assert facts["masked"] is None
    assert facts["calibration"]["examples"] == 120
    assert facts["class_names"] == list("0123456789")
    assert facts["untrained_share"] == 0
    assert len(extracted.curve) == 8


def test_the_extracted_network_is_the_evaluated_one(extractor: Extractor) -> None:
    for point in (extractor.points[0], extractor.points[-1]):
        model = extractor.extract(point, validate=False).model
        test = extractor.test
        with torch.no_grad():
            accuracy = float((model(test.inputs).argmax(dim=1) == test.labels).double().mean())
        assert accuracy == pytest.approx(extractor.recorded_accuracy(point), abs=1.5 / len(test))


def test_what_no_evaluation_has_recorded_is_measured_where_wanted(extractor: Extractor, tmp_path: Path) -> None:
    point = extractor.points[0]
    copytree(extractor.run.folder.path, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    del summary["validation_curve"]
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    older = Extractor(tmp_path / "run")
    facts = older.extract(point, validate=False).facts
    assert (facts["validation_accuracy"], facts["accuracy_from"]["validation"]) == (None, None)
    facts = older.extract(point).facts
    assert facts["accuracy_from"]["validation"] == MEASURED
    assert facts["validation_accuracy"] == pytest.approx(extractor.recorded_accuracy(point, "validation"), abs=0.0126)


def test_an_evaluation_of_other_weights_does_not_count(extractor: Extractor, tmp_path: Path) -> None:
    copytree(extractor.run.folder.path, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (tmp_path / "run" / "summary.json").write_text(json.dumps({**summary, "best_round": 99}))
    other = Extractor(tmp_path / "run").extract(extractor.points[0], validate=False)
    assert other.facts["accuracy_from"]["test"] == MEASURED
    assert other.curve == ()
    (tmp_path / "run" / "summary.json").unlink()
    assert Extractor(tmp_path / "run").recorded_accuracy(extractor.points[0]) is None


def test_a_searched_network_is_measured(extractor: Extractor) -> None:
    point = extractor.choose(Limits(max_macs=700e3), search=True)
    facts = extractor.extract(point, validate=False).facts
    assert not facts["cached"]
    assert facts["accuracy_from"]["test"] == MEASURED
    federation = extractor.run.federation
    deployed = federation.method.deploy(extractor.run.best().flat, point)
    accuracy = federation.test.figures(deployed)["accuracy"]
    assert facts["test_accuracy"] == pytest.approx(accuracy, abs=1.5 / len(extractor.test))
    same_name = replace(extractor.points[0], architecture=point.architecture)
    assert extractor.extract(same_name, validate=False).facts["accuracy_from"]["test"] == MEASURED


def test_untrained_weights_are_counted(extractor: Extractor) -> None:
    share = extractor.extract(extractor.points[-1], validate=False).facts["untrained_share"]
    assert share > 0.3, "no client affords more than 2M MACs"


def test_only_what_a_method_serves_and_trains_counts(tmp_path: Path) -> None:
    settings = {**SHORT, "method": {"name": "fedavg", "max_macs": 1.2e6}}
    fedavg = Extractor(fedfeast.train("digits", out=tmp_path / "run", settings=settings))
    with pytest.raises(InvalidInput, match="the smallest has 1154496 MACs"):
        fedavg.choose(Limits(max_macs=600e3))
    served = fedavg.extract(fedavg.choose(Limits(max_macs=5e6))).facts
    assert (served["macs"], served["cached"], served["untrained_share"]) == (1_154_496, True, 0)
    wider = fedavg.extract(fedavg.choose(Limits(max_macs=5e6), search=True), validate=False).facts
    assert wider["untrained_share"] > 0.01


def test_a_run_in_double_precision_leaves_in_single(tmp_path: Path) -> None:
    settings = {**SHORT, "engine.precision": "float64"}
    extractor = Extractor(fedfeast.train("digits", out=tmp_path / "run", settings=settings))
    extracted = extractor.extract(extractor.points[2])
    assert {tensor.dtype for tensor in extracted.model.parameters()} == {torch.float32}
    federation = extractor.run.federation
    deployed = federation.method.deploy(extractor.run.best().flat, extractor.points[2])
    statistics: dict[str, dict[str, torch.Tensor]] = {}
    for name, buffer in extracted.model.network.named_buffers():
        stem, _, ending = name.rpartition(".")
        statistics.setdefault(stem, {})[ending] = buffer.double()
    values = {stem: (parts["running_mean"], parts["running_var"]) for stem, parts in statistics.items()}
    evaluator = federation.test
    totals = measure_totals(deployed, values, evaluator.test, evaluator.normalisation, evaluator.task).sum(dim=0)
    assert evaluator.task.figures(totals)["accuracy"] == pytest.approx(
        extracted.facts["test_accuracy"], abs=1.5 / len(evaluator.test)
    )


def test_an_uncalibrated_network_needs_no_data(run: fedfeast.Run) -> None:
    fresh = Extractor(run.folder.path)
    model = fresh.uncalibrated(fresh.points[1])
    assert model(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 10)
    assert "federation" not in fresh.run.__dict__


def test_what_no_client_affords_is_never_trained() -> None:
    built = outline(load_recipe("digits", {"method.name": "heterofl", "population.greatest_macs": 400e3}))
    narrow, half, whole = (point.architecture for point in built.method.operating_points()[2:])
    assert whole not in trained_architectures(built)
    support, network = TrainedSupport(built), built.method.network
    assert support.untrained_share(narrow) == 0
    trained = network.parameters(narrow)
    for level in (half, whole):
        assert support.untrained_share(level) == pytest.approx(1 - trained / network.parameters(level))


@pytest.mark.parametrize("method", ["fedrolex", "fiarse", "superfednas"])
def test_where_parts_move_from_round_to_round_it_cannot_be_told(method: str) -> None:
    built = outline(load_recipe("digits", {"method.name": method}))
    assert TrainedSupport(built).untrained_share(built.method.operating_points()[-1].architecture) is None


def test_the_better_one_is_by_what_the_run_validated(run: fedfeast.Run, validated_as: ValidatedAs) -> None:
    extractor = Extractor(run)
    recorded = [row["value"] for row in run.summary["validation_curve"]]
    assert list(extractor.validated().values()) == recorded
    extractor = Extractor(validated_as(0.1, 0.9, 0.3, 0.2, 0.5, 0.6, 0.7, 0.8))
    points = extractor.points
    assert extractor.better(points[7], Limits(max_macs=1e9)) == points[1]
    assert extractor.better(points[1], Limits(max_macs=1e9)) is None


def test_validation_figures_of_other_weights_are_none(validated_as: ValidatedAs) -> None:
    folder = validated_as(*[0.5] * 8).folder.path
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "best_round": summary["best_round"] + 1}))
    forget_sizes(folder)
    extractor = Extractor(folder)
    assert extractor.validated() == {}
    assert extractor.better(extractor.points[7], Limits(max_macs=1e9)) is None
    with pytest.raises(InvalidInput, match=f"--best goes by .* has no such figures .* run fedfeast evaluate {folder} "):
        extractor.require_validated()


def test_before_a_summary_the_served_rounds_own_validation_counts(validated_as: ValidatedAs) -> None:
    folder = validated_as().folder.path
    (folder / "summary.json").unlink()
    metrics = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    served = Extractor(folder).run_facts["best_round"]
    sizes = rows[served - 1]["validation_sizes"]
    for place, size in enumerate(sizes):
        size["value"] = 0.9 if place == 1 else 0.5
    # Another round's sizes are of other weights, and a damaged line stops nothing.
    rows[2 - served]["validation_sizes"] = [{**size, "value": 1.0} for size in sizes]
    metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "x\n")
    extractor = Extractor(folder)
    names = [size["name"] for size in sizes]
    assert {point.name: value for point, value in extractor.validated().items()} == {
        name: 0.9 if place == 1 else 0.5 for place, name in enumerate(names)
    }
    extractor.require_validated()
    best = extractor.choose(Limits(max_macs=1e9), best=True)
    assert best.name == names[1]
    metrics.unlink()
    assert Extractor(folder).validated() == {}


def test_a_rounded_networks_figures_are_its_own(extractor: Extractor, tmp_path: Path) -> None:
    folder = Path(copytree(extractor.run.folder.path, tmp_path / "run"))
    summary = json.loads((folder / "summary.json").read_text())
    for row in (*summary["curve"], *summary["validation_curve"]):  # what nobody can measure here
        row |= {"accuracy": 0.999, "value": 0.999, "figures": {"accuracy": 0.999}}
    (folder / "summary.json").write_text(json.dumps(summary))
    point, rounding = extractor.points[3], Extractor(folder, BundleOptions(float16=True))
    plain, rounded = extractor.extract(point), rounding.extract(point, validate=False)
    assert "weights" not in plain.facts
    assert {tensor.dtype for tensor in rounded.tensors.values()} == {torch.float16}
    assert {tensor.dtype for tensor in rounded.model.parameters()} == {torch.float32}
    state = rounded.model.network.state_dict()
    for name, tensor in plain.tensors.items():
        assert torch.equal(rounded.tensors[name], tensor.half()), name
        assert torch.equal(state[name], tensor.half().float()), name
    with torch.no_grad():
        moved = (rounded.model(plain.samples.inputs) - plain.model(plain.samples.inputs)).abs().max()
        right = (rounded.model(extractor.test.inputs).argmax(dim=1) == extractor.test.labels).double().mean()
    assert rounded.facts["weights"] == "float16"
    assert rounded.facts["rounding_difference"] == pytest.approx(float(moved), abs=1e-5)
    assert 0 < rounded.facts["rounding_difference"] < 0.1
    assert rounded.facts["accuracy_from"] == {"test": MEASURED_ROUNDED, "validation": MEASURED_ROUNDED}
    assert rounded.facts["test_accuracy"] == pytest.approx(float(right), abs=1e-9)
    assert rounded.facts["validation_accuracy"] != 0.999


def test_validation_of_a_rounded_network_is_measured_where_it_was_before_or_is_wanted(
    extractor: Extractor, tmp_path: Path
) -> None:
    folder = Path(copytree(extractor.run.folder.path, tmp_path / "run"))
    summary = json.loads((folder / "summary.json").read_text())
    del summary["validation_curve"]
    (folder / "summary.json").write_text(json.dumps(summary))
    rounding = Extractor(folder, BundleOptions(float16=True))
    sources = [rounding.extract(rounding.points[0], validate).facts["accuracy_from"] for validate in (False, True)]
    assert [one["validation"] for one in sources] == [None, MEASURED_ROUNDED]


def test_drawn_samples_are_no_examples(extractor: Extractor) -> None:
    drawing = Extractor(extractor.run, BundleOptions(drawn_samples=True))
    extracted, plain = (one.extract(one.points[0], validate=False) for one in (drawing, extractor))
    assert extracted.facts["samples_from"] == DRAWN_AS_ASKED
    assert "samples_from" not in plain.facts
    assert (extracted.samples.inputs.shape, extracted.samples.inputs.dtype) == ((16, 1, 8, 8), torch.uint8)
    assert not extracted.samples.labels.any()
    assert torch.equal(extracted.samples.inputs, drawing.extract(drawing.points[1], validate=False).samples.inputs)
    assert extracted.facts["test_accuracy"] == plain.facts["test_accuracy"]
    assert len(drawing.checked) == len(extractor.test), "exports are still compared on all that is here"
