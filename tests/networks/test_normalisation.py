import pytest
import torch

from fedfeast.networks.normalisation import ByStatistics, RecordingByBatch, by_batch


def features(seed: int, batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, 4, 4, generator=generator, dtype=torch.float64) * 2 + 1


SCALE = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
SHIFT = torch.tensor([0.0, -1.0, 3.0], dtype=torch.float64)


def test_by_batch_equals_torch() -> None:
    layer = torch.nn.BatchNorm2d(3, dtype=torch.float64)
    layer.weight.data, layer.bias.data = SCALE, SHIFT
    inputs = features(0, 8)
    torch.testing.assert_close(by_batch("n", inputs, SCALE, SHIFT), layer(inputs))


def test_recording_is_the_example_weighted_mean_of_batches() -> None:
    recording = RecordingByBatch()
    one, two = features(0, 8), features(1, 2)
    for inputs in (one, two):
        torch.testing.assert_close(recording("n", inputs, SCALE, SHIFT), by_batch("n", inputs, SCALE, SHIFT))
    mean, variance = recording.statistics(torch.float64)["n"]
    expected_mean = 0.8 * one.mean((0, 2, 3)) + 0.2 * two.mean((0, 2, 3))
    expected_variance = 0.8 * one.var((0, 2, 3), correction=0) + 0.2 * two.var((0, 2, 3), correction=0)
    torch.testing.assert_close(mean, expected_mean)
    torch.testing.assert_close(variance, expected_variance)


def test_by_statistics_of_one_batch_equals_by_batch() -> None:
    recording, inputs = RecordingByBatch(), features(0, 8)
    expected = recording("n", inputs, SCALE, SHIFT)
    served = ByStatistics(recording.statistics(torch.float64))
    torch.testing.assert_close(served("n", inputs, SCALE, SHIFT), expected)


@pytest.mark.gpu
def test_vectors_that_start_anywhere_are_normalised_with() -> None:
    flat, inputs = torch.randn(2 * 26 + 1, device="cuda"), torch.randn(256, 26, 32, 32, device="cuda")
    inputs = inputs.to(memory_format=torch.channels_last)
    scale, shift = flat[1:27], flat[27:]
    normalised = by_batch("n", inputs, scale, shift)
    torch.testing.assert_close(normalised, by_batch("n", inputs, scale.clone(), shift.clone()))
