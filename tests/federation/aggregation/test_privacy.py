from math import exp, sqrt
from statistics import NormalDist

import numpy as np
import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Privacy, privatise, spent_epsilon


def test_the_change_is_clipped_and_noise_is_added() -> None:
    sent = torch.full((40_000,), 5.0, dtype=torch.float64)
    returned = sent + 3.0  # norm 600
    privacy = Privacy(clip_norm=2.0, noise_multiplier=0.5)
    assert privacy.noise_deviation == 2.0  # half the sensitivity of 4
    change = privatise(sent, returned, privacy, np.random.default_rng(1)) - sent
    noise = change - 3.0 * 2.0 / 600.0
    assert float(noise.std()) == pytest.approx(2.0, rel=0.02)
    assert abs(float(noise.mean())) < 0.05
    again = privatise(sent, returned, privacy, np.random.default_rng(1)) - sent
    assert torch.equal(change, again)


def test_a_small_change_is_not_enlarged() -> None:
    sent, returned = torch.zeros(3), torch.tensor([0.1, 0.0, 0.2])
    almost_none = Privacy(clip_norm=1.0, noise_multiplier=1e-9)
    got = privatise(sent, returned, almost_none, np.random.default_rng(0))
    assert got.tolist() == pytest.approx(returned.tolist(), abs=1e-6)
    assert got.dtype == torch.float32
    assert torch.isfinite(privatise(sent, sent, almost_none, np.random.default_rng(0))).all()


@pytest.mark.parametrize(("multiplier", "participations"), [(1.0, 1), (4.0, 15), (20.0, 400)])
def test_composition_is_the_accountants_and_that_of_one_wider_gaussian(multiplier: float, participations: int) -> None:
    accounting = pytest.importorskip("dp_accounting")
    privacy = Privacy(1.0, multiplier, delta=1e-5)
    epsilon = spent_epsilon(privacy, participations)
    # The accountant's other ways: loss distributions composed one by one, and Renyi divergence, which is never tighter.
    losses = accounting.pld.PLDAccountant().compose(accounting.GaussianDpEvent(multiplier), participations)
    assert epsilon == pytest.approx(losses.get_epsilon(1e-5), rel=1e-4)
    renyi = accounting.rdp.RdpAccountant().compose(accounting.GaussianDpEvent(multiplier), participations)
    assert epsilon <= renyi.get_epsilon(1e-5)
    assert epsilon >= 0.7 * renyi.get_epsilon(1e-5)
    # Gaussians compose exactly: as one with noise smaller by the root of the number (Balle and Wang, 2018).
    wide, normal = multiplier / sqrt(participations), NormalDist()
    delta = normal.cdf(0.5 / wide - epsilon * wide) - exp(epsilon) * normal.cdf(-0.5 / wide - epsilon * wide)
    assert delta == pytest.approx(1e-5, rel=0.02)


def test_who_never_took_part_spent_nothing() -> None:
    assert spent_epsilon(Privacy(1.0, 1.0), 0) == 0.0


@pytest.mark.parametrize("options", [{"clip_norm": 0.0}, {"noise_multiplier": -1.0}, {"delta": 1.0}])
def test_options_out_of_range_are_said(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Privacy(**{"clip_norm": 1.0, "noise_multiplier": 1.0, **options})
