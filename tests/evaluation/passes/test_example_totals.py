"""Sums example by example: batches that shrink with memory, and outputs that half precision cannot hold."""

import logging
from typing import Any

import pytest
import torch
from tiny import deployed, examples
from torch import Tensor

from fedfeast.data import Normalisation
from fedfeast.data.tasks import CLASSIFICATION
from fedfeast.evaluation import Evaluator, measure_totals, recalibrate
from fedfeast.evaluation.evaluator import _Started
from fedfeast.evaluation.passes.example_totals import CPU_BATCH, GPU_BATCH, LEAST_BATCH, BatchLimit, start_totals
from fedfeast.evaluation.passes.folded import FoldedLayers
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks import Layout
from fedfeast.networks.layers import Layers, Weights

NORMALISATION = Normalisation((0.4,), (0.3,))
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Heavy:
    """A network with memory for so many examples at once; it notes the sizes that fitted."""

    def __init__(self, room: int) -> None:
        self.room, self.sizes = room, list[int]()

    def forward(self, weights: Weights, inputs: Tensor, architecture: Any, layers: Layers) -> tuple[Tensor, ...]:
        if len(inputs) > self.room:
            raise torch.cuda.OutOfMemoryError("no memory")
        self.sizes.append(len(inputs))
        return (inputs.flatten(1),)


def measured(network: Any, limit: BatchLimit) -> Tensor:
    heavy = Deployed(network, None, Layout.of({"w": (1,)}), torch.zeros(1), 1, 1)
    return measure_totals(heavy, {}, examples(1200), NORMALISATION, CLASSIFICATION, limit)


def test_out_of_memory_means_smaller_batches_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    plenty, network, limit = Heavy(CPU_BATCH), Heavy(130), BatchLimit()
    wanted = measured(plenty, BatchLimit())
    assert plenty.sizes == [400] * 3
    with caplog.at_level(logging.WARNING, "fedfeast"):
        given = measured(network, limit)
        network.room = CPU_BATCH
        measured(network, limit)
    assert torch.equal(given, wanted)
    assert set(network.sizes) == {120}
    assert [record.getMessage() for record in caplog.records] == [
        "the device has no memory for an evaluation of 500 examples at once: it goes on with 250 or fewer, which "
        "gives the same figures more slowly"
    ]


def test_what_fits_in_no_size_is_an_error() -> None:
    limit = BatchLimit()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        measured(Heavy(LEAST_BATCH), limit)
    assert limit.on(CPU) < 2 * LEAST_BATCH


def test_a_gpu_takes_more_at_once() -> None:
    assert BatchLimit().on(CPU) == CPU_BATCH
    assert BatchLimit().on(CUDA) == GPU_BATCH
    assert BatchLimit(700).on(CUDA) == 700
    assert BatchLimit(700).on(CPU) == CPU_BATCH


def test_outputs_beyond_half_precision_are_marked_and_measured_again() -> None:
    network, test = deployed(), examples(40, "test")
    statistics = dict(recalibrate(network, examples(250), NORMALISATION))
    folded = FoldedLayers(statistics, torch.float16)
    given = (test, NORMALISATION, CLASSIFICATION, BatchLimit())
    plain = measure_totals(network, statistics, *given)
    group = PrefixGroup.of((network,))
    (held,) = start_totals(group, (folded,), *given)
    assert not bool(held.isnan().any()), "what float16 holds is not marked"
    network.weights["stem.norm.scale"].fill_(1e7)
    (broken,) = start_totals(group, (FoldedLayers(statistics, torch.float16),), *given)
    assert bool(broken.isnan().all())

    class Method:
        def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
            return deployed()

    method: Any = Method()
    evaluator, point = Evaluator(test, test, NORMALISATION), OperatingPoint("one", 1, 1, None)
    again = _Started(point, False, statistics, broken).totals(evaluator, method, network.flat)
    assert torch.equal(again, plain)
    as_it_is = _Started(point, True, statistics, broken).totals(evaluator, method, network.flat)
    assert bool(as_it_is.isnan().all()), "what exact layers found no number for has none"
