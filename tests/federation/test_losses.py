import math

import torch

from fedfeast.data import Batch
from fedfeast.federation import mixed_cross_entropy, soft_cross_entropy


def test_mixed_cross_entropy_on_hand_made_logits() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(3.0)]])
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.25))
    expected = 0.25 * -math.log(0.25) + 0.75 * -math.log(0.75)
    assert math.isclose(float(mixed_cross_entropy(logits, batch)), expected, rel_tol=1e-6)


def test_soft_cross_entropy_on_hand_made_logits() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(3.0)]])
    expected = -0.5 * math.log(0.25) - 0.5 * math.log(0.75)
    assert math.isclose(float(soft_cross_entropy(logits, torch.tensor([[0.5, 0.5]]))), expected, rel_tol=1e-6)
