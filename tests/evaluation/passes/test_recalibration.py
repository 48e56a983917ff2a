from dataclasses import replace
from typing import Any

import torch
from tiny import NETWORK, SPACE, deployed, examples
from torch import Tensor

from fedfeast.data import Augmentation, Examples, Normalisation, normalise
from fedfeast.evaluation import StatisticsSums, augmented, recalibrate
from fedfeast.evaluation.passes.recalibration import CALIBRATION_BATCH, in_batches, passes
from fedfeast.federation import Deployed
from fedfeast.networks import Layout
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.normalisation import RecordingByBatch
from fedfeast.randomness import named_generator

NORMALISATION = Normalisation((0.4,), (0.3,))


def test_recalibration_is_deterministic_and_covers_every_norm() -> None:
    one, two = (recalibrate(deployed(), examples(600), NORMALISATION) for _ in range(2))
    assert {f"{name}.scale" for name in one} == {
        name for name in NETWORK.shapes(SPACE.largest) if name.endswith(".scale")
    }
    for name in one:
        assert torch.equal(one[name][0], two[name][0])
        assert torch.equal(one[name][1], two[name][1])


def test_recalibrated_statistics_normalise_the_calibration_set_itself() -> None:
    network, held = deployed(), examples(250)
    statistics = recalibrate(network, held, NORMALISATION)
    mean, variance = statistics["stem.norm"]
    pixels = (held.inputs.double() / 255 - 0.4) / 0.3
    stem = torch.nn.functional.conv2d(pixels, network.layout.views(network.flat)["stem.conv"].double(), padding=1)
    torch.testing.assert_close(mean.double(), stem.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance.double(), stem.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-6)


def test_no_batch_is_left_with_a_single_example() -> None:
    sizes = [len(labels) for _, labels in in_batches(examples(251), NORMALISATION, 250, torch.float32)]
    assert sizes == [126, 125]


def test_batches_of_one_size_go_together() -> None:
    batches = [torch.full((size, 1), float(size)) for size in (64, 64, 64, 64, 30, 64)]
    together = list(passes(batches, 200))
    assert [(len(inputs), count) for inputs, count in together] == [(192, 3), (64, 1), (30, 1), (64, 1)]
    assert torch.equal(torch.cat([inputs for inputs, _ in together]), torch.cat(batches))
    assert [count for _, count in passes(batches, 1)] == [1] * 6


def test_several_batches_in_a_pass_give_the_same_statistics() -> None:
    whole, held = deployed(), examples(230)
    network = replace(whole, flat=whole.flat.double())
    expected, recording = recalibrate(network, held, NORMALISATION, 50), RecordingByBatch()
    batches = (normalise(inputs, NORMALISATION, torch.float64) for inputs in torch.split(held.inputs, 50))
    for inputs, recording.batches in passes(batches, 200):
        network(inputs, recording)
    torch.testing.assert_close(recording.statistics(torch.float64), expected)


class Plain:
    """A network without batch norm; it counts its passes."""

    def __init__(self) -> None:
        self.passes = 0

    def forward(self, weights: Weights, inputs: Tensor, architecture: Any, layers: Layers) -> tuple[Tensor, ...]:
        self.passes += 1
        return (inputs.flatten(1),)


def test_a_network_without_batch_norm_needs_no_calibration() -> None:
    network: Any = Plain()
    plain = Deployed(network, None, Layout.of({"w": (1,)}), torch.zeros(1), 1, 1)
    assert recalibrate(plain, examples(3 * CALIBRATION_BATCH), NORMALISATION) == {}
    assert network.passes == 1, "one batch shows it"
    assert StatisticsSums.of(plain, examples(10), NORMALISATION).statistics(torch.float32) == {}


def test_sums_of_one_batch_give_the_same_statistics() -> None:
    network, held = deployed(), examples(250)
    sums, whole = StatisticsSums.of(network, held, NORMALISATION), recalibrate(network, held, NORMALISATION)
    assert sums.examples == 250
    served = sums.statistics(torch.float32)
    assert served.keys() == whole.keys()
    for name, both in whole.items():
        for one, other in zip(served[name], both, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_sums_of_unlike_clients_add_up_to_the_statistics_of_all_examples() -> None:
    network, held = deployed(), examples(120)
    dark = Examples(held.inputs[:40] // 4, held.labels[:40])
    bright = Examples(held.inputs[40:], held.labels[40:])
    parts = [StatisticsSums.of(network, one, NORMALISATION) for one in (dark, bright)]
    mean, variance = parts[0].plus(parts[1]).statistics(torch.float64)["stem.norm"]
    pixels = (torch.cat((dark.inputs, bright.inputs)).double() / 255 - 0.4) / 0.3
    stem = torch.nn.functional.conv2d(pixels, network.layout.views(network.flat)["stem.conv"].double(), padding=1)
    torch.testing.assert_close(mean, stem.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance, stem.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-6)
    (_, of_dark), (_, of_bright) = (part.statistics(torch.float64)["stem.norm"] for part in parts)
    assert bool((variance > (40 * of_dark + 80 * of_bright) / 120).all()), "what lies between the clients counts"


def test_who_has_a_single_example_says_nothing() -> None:
    network = deployed()
    one, many = (StatisticsSums.of(network, examples(count), NORMALISATION) for count in (1, 30))
    assert (one.examples, dict(one.by_layer)) == (0, {})
    assert one.plus(many) is many
    assert many.plus(one) is many


def test_batches_of_a_size_weigh_by_their_examples() -> None:
    """Means of batch means and of biased variances, each weighed by its batch's examples, as OFA has them."""
    network, held = deployed(), examples(150)
    mean, variance = recalibrate(network, held, NORMALISATION, batch_size=64)["stem.norm"]
    pixels = (held.inputs.double() / 255 - 0.4) / 0.3
    stem = torch.nn.functional.conv2d(pixels, network.layout.views(network.flat)["stem.conv"].double(), padding=1)
    parts = torch.split(stem, [64, 64, 22])
    weights = [len(part) / 150 for part in parts]
    means = sum(weight * part.mean((0, 2, 3)) for weight, part in zip(weights, parts, strict=True))
    biased = sum(weight * part.var((0, 2, 3), correction=0) for weight, part in zip(weights, parts, strict=True))
    torch.testing.assert_close(mean.double(), means, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(variance.double(), biased, rtol=1e-4, atol=1e-6)


def test_a_single_example_left_over_joins_the_batch_before() -> None:
    joined = recalibrate(deployed(), examples(65), NORMALISATION, batch_size=64)
    whole = recalibrate(deployed(), examples(65), NORMALISATION, batch_size=65)
    for name in joined:
        assert torch.equal(joined[name][1], whole[name][1])


def test_calibration_images_may_be_augmented_once_for_all() -> None:
    held, rule = examples(40), Augmentation(crop_padding=2, flip=True, randaugment=(2, 6))
    one, two, other = (augmented(held, rule, named_generator(seed, "calibration")) for seed in (0, 0, 1))
    assert torch.equal(one.inputs, two.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert one.inputs.dtype == torch.uint8
    assert torch.equal(one.labels, held.labels)
    assert not torch.equal(one.inputs, held.inputs)
