"""Dropout by a hash: the same mask everywhere, the right share, and a mean that is kept."""

import pytest
import torch

from fedfeast.hashed_bits import hashed_bits, name_key
from fedfeast.networks.dropout import kept_features
from fedfeast.networks.normalisation import ByBatch, ByStatistics, RecordingByBatch

DRAW = torch.tensor(-7)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_and_the_mean_are_met(share: float) -> None:
    kept = kept_features(DRAW, "layer", torch.ones(400, 500), share)
    assert float((kept == 0).float().mean()) == pytest.approx(share, abs=0.005)
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.02)


def test_a_mask_is_a_function_of_draw_name_and_position_alone() -> None:
    ones = torch.ones(5, 7)
    mask = kept_features(DRAW, "layer", ones, 0.5)
    assert torch.equal(mask.double(), kept_features(DRAW, "layer", ones.double(), 0.5))
    assert torch.equal(mask[:3], kept_features(DRAW, "layer", ones[:3], 0.5))
    transposed = torch.ones(7, 5).T
    assert torch.equal(mask, kept_features(DRAW, "layer", transposed, 0.5))
    assert not torch.equal(mask, kept_features(DRAW, "other", ones, 0.5))
    assert not torch.equal(mask, kept_features(DRAW + 1, "layer", ones, 0.5))
    assert torch.equal((mask > 0).flatten(), hashed_bits(DRAW ^ name_key("layer"), 35) >= 0)


def test_neighbouring_positions_and_draws_are_independent() -> None:
    masks = torch.stack([kept_features(torch.tensor(draw), "a", torch.ones(4096), 0.5) > 0 for draw in range(32)])
    correlations = torch.corrcoef(masks.double())
    assert float((correlations - torch.eye(32)).abs().max()) < 0.08
    shifted = torch.corrcoef(torch.stack([masks[:, step : 4000 + step].flatten().double() for step in range(8)]))
    assert float((shifted - torch.eye(8)).abs().max()) < 0.02


def test_nothing_and_everything() -> None:
    features = torch.randn(3, 4)
    assert kept_features(DRAW, "a", features, 0.0) is features
    assert torch.equal(kept_features(DRAW, "a", features, 1.0), torch.zeros(3, 4))


def test_only_a_training_pass_with_a_draw_drops() -> None:
    features = torch.randn(3, 4)
    for layers in (ByBatch(), RecordingByBatch(), ByStatistics({})):
        assert layers.dropout("a", features, 0.5) is features
    assert not torch.equal(ByBatch(DRAW).dropout("a", features, 0.5), features)
    assert (ByBatch.training, RecordingByBatch.training, ByStatistics.training) == (True, False, False)
