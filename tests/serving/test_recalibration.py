import pytest
import torch

from fedfeast.evaluation import recalibrate
from fedfeast.randomness import named_generator
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.recalibration import BLOCK_ELEMENTS, moments, recalibrate_quickly


def test_the_statistics_are_those_of_the_evaluation(extractor: Extractor) -> None:
    federation = extractor.run.federation
    deployed = federation.method.deploy(extractor.run.best().flat, extractor.points[3])
    parts = (deployed, federation.test.calibration, federation.test.normalisation)
    quick, slow = recalibrate_quickly(*parts), recalibrate(*parts)
    assert quick.keys() == slow.keys()
    for name in slow:
        for ours, theirs in zip(quick[name], slow[name], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-6)


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
