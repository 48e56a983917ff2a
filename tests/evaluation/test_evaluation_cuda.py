"""Evaluation on a CUDA device: the figures of the CPU, and no waiting for the device between batches."""

import warnings

import pytest
import torch

from fedfeast.evaluation import Evaluator, measure_sets
from fedfeast.evaluation.passes.folded import FoldedLayers, layers_by
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup, group_alike
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

pytestmark = pytest.mark.gpu


def federation_on(device: str, precision: str = "auto", branch: str = "rectified") -> Federation:
    settings = {"engine.device": device, "engine.precision": precision, "network.branch": branch}
    return assemble(load_recipe("digits", settings))


def sets_of(federation: Federation) -> dict[str, Evaluator]:
    assert isinstance(federation.validation, Evaluator)
    return {"validation": federation.validation, "test": federation.test}


def test_values_and_statistics_are_those_of_the_cpu() -> None:
    here, there = federation_on("cpu"), federation_on("cuda")
    points = here.method.operating_points()
    measured = [measure_sets(sets_of(one), one.method, one.initial_weights(), points) for one in (here, there)]
    for name, on_cpu in measured[0].items():
        values = torch.tensor([[point.value for point in one.curve.points] for one in (on_cpu, measured[1][name])])
        assert float((values[0] - values[1]).abs().max()) <= 0.01, "a few examples lie between two classes"
    deployed = [one.method.deploy(one.initial_weights(), points[-1]) for one in (here, there)]
    statistics = [one.test.recalibrate(network) for one, network in zip((here, there), deployed, strict=True)]
    for name, both in statistics[0].items():
        for one, other in zip(both, statistics[1][name], strict=True):
            torch.testing.assert_close(other.cpu(), one, rtol=2e-2, atol=2e-3)  # convolutions are in TF32


def test_double_precision_is_exact() -> None:
    here, there = federation_on("cpu", "float64"), federation_on("cuda", "float64")
    points = here.method.operating_points()
    curves = [one.test.curve(one.method, one.initial_weights(), points) for one in (here, there)]
    assert curves[0] == curves[1]


@pytest.mark.parametrize("branch", ["rectified", "signed"])
def test_half_precision_gives_nearly_the_outputs_of_the_statistics(branch: str) -> None:
    federation = federation_on("cuda", branch=branch)
    deployed = federation.method.deploy(federation.initial_weights(), federation.method.operating_points()[-1])
    statistics = federation.test.recalibrate(deployed)
    layers = layers_by(deployed, statistics)
    assert isinstance(layers, FoldedLayers)
    assert layers.dtype == torch.float16
    images = torch.randn(64, 1, 8, 8, device="cuda")
    with torch.no_grad():
        given = deployed(images, layers)
        whole = deployed(images, FoldedLayers(statistics, torch.float32))
    torch.testing.assert_close(given, whole, rtol=0.02, atol=0.02)


def test_nothing_waits_for_the_device_until_the_sums_are_wanted() -> None:
    federation = federation_on("cuda")
    evaluator, flat = federation.test, federation.initial_weights()
    deployed = federation.method.deploy(flat, federation.method.operating_points()[0])
    evaluator.totals(deployed, evaluator.recalibrate(deployed))  # kernels are compiled
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode does not notice all
        torch.cuda.set_sync_debug_mode("error")
        try:
            layers = layers_by(deployed, evaluator.recalibrate(deployed))
            (totals,) = evaluator.start_totals(PrefixGroup.of((deployed,)), (layers,))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(evaluator.by_client(totals.cpu()), evaluator.totals(deployed, layers.statistics))


def test_values_do_not_depend_on_the_batch() -> None:
    federation = federation_on("cuda")
    evaluator, flat = federation.test, federation.initial_weights()
    deployed = federation.method.deploy(flat, federation.method.operating_points()[-1])
    statistics = evaluator.recalibrate(deployed)
    whole = evaluator.totals(deployed, statistics)
    evaluator.limit.examples = 50
    torch.testing.assert_close(evaluator.totals(deployed, statistics), whole, rtol=0, atol=2)


def test_networks_that_begin_alike_have_the_values_of_each_alone() -> None:
    federation = federation_on("cuda")
    evaluator, method, flat = federation.test, federation.method, federation.initial_weights()
    points = method.operating_points()
    assert any(any(PrefixGroup.of([method.deploy(flat, one) for one in alike]).shared) for alike in group_alike(points))
    together = evaluator.curve(method, flat, points)
    assert together.points == tuple(evaluator.curve(method, flat, (point,)).points[0] for point in points)
