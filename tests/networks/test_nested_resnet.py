import pytest
import torch
import torch.nn.functional as F

from fedfeast.errors import InvalidInput
from fedfeast.networks import ResNet
from fedfeast.networks.nested_resnet import Cut, NestedLevel, NestedResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

RESNET = ResNet((4, 8), (2, 2), (1, 2), image_size=8, image_channels=1, classes=3)
NETWORK = NestedResNet(RESNET, ((0.5, (2, 1)), (1.0, (2, 2))))
SMALL, LARGE = NETWORK.levels


def test_levels_share_convolutions_and_head_alone() -> None:
    small, large = NETWORK.shapes(SMALL), NETWORK.shapes(LARGE)
    shared = small.keys() & large.keys()
    assert shared == {name for name in small if not name.endswith((".scale", ".shift", ".step"))}
    assert "head2.weight" in shared
    assert "stage2.block1.conv1" not in small  # the block that the smaller level lacks
    assert {name for name in large if name.endswith(".step")} == {
        f"level2.stage{stage}.block{block}.step" for stage in (1, 2) for block in (0, 1)
    }
    plain = RESNET.parameters(RESNET.whole)
    assert NETWORK.parameters(LARGE) == plain + 4
    assert NETWORK.macs(LARGE) == RESNET.macs(RESNET.whole)


def test_a_step_multiplies_the_residual_branch() -> None:
    flat = NETWORK.initial_weights(named_generator(0)).double()
    weights = NETWORK.layout.views(flat)
    assert all(float(view) == 1.0 for name, view in weights.items() if name.endswith(".step"))
    images = torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for block in ("stage1.block0", "stage1.block1"):
        weights[f"level2.{block}.step"].fill_(0.5)
    plain = NETWORK.plain_weights(weights, LARGE)
    features = torch.randn(4, 4, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for part in ("scale", "shift"):
        torch.testing.assert_close(
            plain[f"stage1.block0.norm2.{part}"], 0.5 * weights[f"level2.stage1.block0.norm2.{part}"]
        )
    normalised = F.batch_norm(features, None, None, weights["level2.stage1.block0.norm2.scale"], None, training=True)
    halved = F.batch_norm(features, None, None, plain["stage1.block0.norm2.scale"], None, training=True)
    torch.testing.assert_close(halved, 0.5 * normalised)
    assert NETWORK.forward(weights, images, LARGE, by_batch)[-1].shape == (4, 3)


@pytest.mark.parametrize("cut", [(0.0, (2, 2)), (0.5, (2,)), (0.5, (0, 2)), (0.5, (2, 3))])
def test_levels_that_are_none_are_refused(cut: Cut) -> None:
    with pytest.raises(InvalidInput, match=r"method.levels has the level"):
        NestedResNet(RESNET, (cut,))
    with pytest.raises(InvalidInput, match=r"method.levels = \[\]"):
        NestedResNet(RESNET, ())
    with pytest.raises(InvalidInput, match="it has 2 levels"):
        NETWORK.plain(NestedLevel(3))
