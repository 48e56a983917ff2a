import pytest
import torch

from fedfeast.networks.normalisation import (
    BLOCK_ELEMENTS,
    ByStatistics,
    RecordingByBatch,
    by_batch,
    moments,
    normalise_batches,
    normalise_by_moments,
)
from fedfeast.randomness import named_generator


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


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)])
def test_a_single_value_is_its_own_mean_and_becomes_the_shift(shape: tuple[int, ...]) -> None:
    inputs = torch.tensor([5.0, -1.0, 2.0], dtype=torch.float64).view(shape).requires_grad_()
    out = by_batch("n", inputs, SCALE, SHIFT)
    assert out.shape == shape
    torch.testing.assert_close(out.flatten(), SHIFT)
    (gradient,) = torch.autograd.grad(out.square().sum(), inputs)
    torch.testing.assert_close(gradient, torch.zeros_like(inputs))
    copies = inputs.detach().expand(4, *shape[1:])
    torch.testing.assert_close(out, by_batch("n", copies, SCALE, SHIFT)[:1])  # as a batch of copies has it


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


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (300.0, 1.0), (-5.0, 1e-3)])
def test_moments_keep_their_digits(layout: torch.memory_format, mean: float, deviation: float) -> None:
    drawn = named_generator(0, "features").normal(mean, deviation, (30, 24, 20, 21))
    features = torch.from_numpy(drawn).float()
    assert features.numel() > 2 * BLOCK_ELEMENTS
    features = features.contiguous(memory_format=layout)
    variance, average = torch.var_mean(features.double(), dim=(0, 2, 3), correction=0)
    ours = moments(features)
    torch.testing.assert_close(ours[0], average, rtol=1e-6, atol=1e-6 * deviation)
    torch.testing.assert_close(ours[1], variance, rtol=1e-5, atol=0)


def test_a_constant_channel_has_no_variance() -> None:
    mean, variance = moments(torch.full((4, 3, 2, 2), 0.1).contiguous(memory_format=torch.channels_last))
    assert torch.equal(variance, torch.zeros(3, dtype=torch.float64))
    assert mean.tolist() == pytest.approx([0.1] * 3)


@pytest.mark.gpu
def test_vectors_that_start_anywhere_are_normalised_with() -> None:
    flat, inputs = torch.randn(2 * 26 + 1, device="cuda"), torch.randn(256, 26, 32, 32, device="cuda")
    inputs = inputs.to(memory_format=torch.channels_last)
    scale, shift = flat[1:27], flat[27:]
    normalised = by_batch("n", inputs, scale, shift)
    torch.testing.assert_close(normalised, by_batch("n", inputs, scale.clone(), shift.clone()))


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (6, 3, 2, 2, 2)], ids=len)
def test_features_of_any_rank_with_an_epsilon_of_their_own(shape: tuple[int, ...]) -> None:
    inputs = torch.from_numpy(named_generator(0, "features").normal(2, 3, shape))
    axes = (0, *range(2, len(shape)))
    variance, mean = torch.var_mean(inputs, dim=axes, correction=0)
    broadcast = (1, 3, *(1 for _ in shape[2:]))
    expected = (inputs - mean.view(broadcast)) / (variance.view(broadcast) + 0.1).sqrt()
    recording = RecordingByBatch()
    for layers in (by_batch, recording):
        torch.testing.assert_close(layers("n", inputs, None, None, epsilon=0.1), expected)
    recorded = recording.statistics(torch.float64)["n"]
    torch.testing.assert_close(recorded, (mean, variance))
    torch.testing.assert_close(ByStatistics({"n": recorded})("n", inputs, None, None, epsilon=0.1), expected)


@pytest.mark.parametrize("shape", [(6, 5, 3, 3), (7, 4, 11), (20, 3)])
def test_one_pass_normalises_and_tells_the_moments(shape: tuple[int, ...]) -> None:
    inputs = torch.from_numpy(named_generator(0, "features").normal(2, 3, shape))
    scale, shift = torch.linspace(1, 2, shape[1]).double(), torch.linspace(0, 1, shape[1]).double()
    normalised, both = normalise_by_moments(inputs, scale, shift, 1e-3)
    torch.testing.assert_close(normalised, by_batch("n", inputs, scale, shift, 1e-3))
    torch.testing.assert_close(both, torch.stack(moments(inputs)))


@pytest.mark.parametrize("shape", [(6, 5, 3, 3), (6, 4, 11), (6, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_batches_in_one_tensor_are_normalised_each_by_itself(shape: tuple[int, ...], affine: bool) -> None:
    inputs = torch.from_numpy(named_generator(0, "features").normal(2, 3, shape))
    scale, shift = torch.linspace(1, 2, shape[1]).double(), torch.linspace(0, 1, shape[1]).double()
    given = (scale, shift, 1e-3) if affine else (None, None, 1e-3)
    if len(shape) == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    normalised, both = normalise_batches(inputs, 3, *given)
    apart = inputs.chunk(3)
    torch.testing.assert_close(normalised, torch.cat([by_batch("n", batch, *given) for batch in apart]))
    torch.testing.assert_close(both, torch.stack([torch.stack(moments(batch)) for batch in apart]).mean(dim=0))
