import torch
from tiny import NETWORK, SPACE

from fedfeast.data import Examples, Normalisation
from fedfeast.evaluation import Evaluator, measure_accuracy, recalibrate
from fedfeast.evaluation.recalibration import in_batches
from fedfeast.federation import Deployed
from fedfeast.networks import Layout
from fedfeast.randomness import named_generator

NORMALISATION = Normalisation((0.4,), (0.3,))


def deployed() -> Deployed:
    flat = NETWORK.initial_weights(named_generator(0, "weights"))
    return Deployed(NETWORK, SPACE.largest, Layout.of(NETWORK.shapes(SPACE.largest)), flat, 1, 1)


def examples(count: int, name: str = "examples") -> Examples:
    generator = named_generator(0, name)
    images = torch.from_numpy(generator.integers(0, 256, (count, 1, 8, 8)).astype("uint8"))
    return Examples(images, torch.from_numpy(generator.integers(0, 4, count)))


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


def test_accuracy_counts_every_example_once() -> None:
    network, held, test = deployed(), examples(250), examples(1203, "test")
    statistics = recalibrate(network, held, NORMALISATION)
    accuracy = measure_accuracy(network, statistics, test, NORMALISATION)
    assert accuracy * 1203 == round(accuracy * 1203)
    assert Evaluator(held, test, NORMALISATION).accuracy(network) == accuracy
    impossible = Examples(test.inputs, torch.full_like(test.labels, -1))
    assert measure_accuracy(network, statistics, impossible, NORMALISATION) == 0
