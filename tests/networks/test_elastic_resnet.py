from dataclasses import replace

import pytest
import torch
from tiny import SPACE as TINY_SPACE
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, Branch, ElasticResNet, SearchSpace, SlicedVariant
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

# Sides that no stride divides, and channels that are no grey.
SPACE = replace(TINY_SPACE, depths=(0, 1, 2), image_size=9, image_channels=2)
ARCHITECTURE = Architecture((1, 2), (0.5, 0.25), (1, 0, 1))


class PlainBlock(nn.Module):
    """The block of the paper's network in torch layers, written out on its own."""

    def __init__(self, incoming: int, middle: int, width: int, stride: int, projects: bool, signed: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, middle, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.pool = nn.AvgPool2d(stride, stride, ceil_mode=True)
        self.projects, self.signed = projects, signed
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width)

    def forward(self, features: Tensor) -> Tensor:
        main = torch.relu(self.norm1(self.conv1(features)))
        main = self.norm2(self.conv2(main))
        main = main if self.signed else torch.relu(main)
        side = self.shortcut_norm(self.shortcut(self.pool(features))) if self.projects else features
        return torch.relu(main + side)


def plain_network(space: SearchSpace, architecture: Architecture, signed: bool) -> nn.Module:
    incoming = space.stem_width(architecture)
    layers: list[nn.Module] = [
        nn.Conv2d(space.image_channels, incoming, 3, space.stem_stride, 1, bias=False),
        nn.BatchNorm2d(incoming),
        nn.ReLU(),
    ]
    for stage, depth in enumerate(architecture.depths):
        width, middle = space.stage_width(architecture, stage), space.middle_width(architecture, stage)
        for block in range(1 + depth):
            stride = space.stage_strides[stage] if block == 0 else 1
            layers.append(PlainBlock(incoming, middle, width, stride, block == 0, signed))
            incoming = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(incoming, space.classes))


@pytest.mark.parametrize("branch", ["rectified", "signed"])
def test_forward_and_gradient_equal_plain_torch_layers(branch: Branch) -> None:
    network = ElasticResNet(SPACE, branch)
    flat = network.initial_weights(named_generator(0, "weights")).double()
    weights = {
        name: view.detach().clone().requires_grad_()
        for name, view in network.layout.views(flat, network.shapes(ARCHITECTURE)).items()
    }
    plain = plain_network(SPACE, ARCHITECTURE, branch == "signed").double()
    for parameter, weight in zip(plain.parameters(), weights.values(), strict=True):
        parameter.data.copy_(weight.detach())
    images = torch.from_numpy(named_generator(0, "images").normal(size=(6, 2, 9, 9)))
    (logits,) = network.forward(weights, images, ARCHITECTURE, by_batch)
    expected = plain(images)
    torch.testing.assert_close(logits, expected)
    logits.square().sum().backward()  # type: ignore[no-untyped-call]
    expected.square().sum().backward()
    for parameter, weight in zip(plain.parameters(), weights.values(), strict=True):
        torch.testing.assert_close(weight.grad, parameter.grad)


def test_a_branch_costs_and_draws_the_same_with_either_sign() -> None:
    rectified, signed = (ElasticResNet(SPACE, branch) for branch in ("rectified", "signed"))
    assert rectified.layout.shapes == signed.layout.shapes
    assert rectified.macs(ARCHITECTURE) == signed.macs(ARCHITECTURE)
    drawn = [network.initial_weights(named_generator(0, "weights")) for network in (rectified, signed)]
    assert torch.equal(*drawn)
    assert rectified != signed


def test_another_branch_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r'network\.branch = "scaled": give "rectified" or "signed"'):
        ElasticResNet(SPACE, "scaled")  # type: ignore[arg-type]


def test_a_sliced_variant_has_its_networks_branches() -> None:
    network = ElasticResNet(SPACE, "signed", 0.2)
    sliced = SlicedVariant.of(network, ARCHITECTURE, (0.5,))
    assert (sliced.branch, sliced.branch_scale) == ("signed", 0.2)


def test_equal_seeds_give_equal_weights() -> None:
    network = ElasticResNet(SPACE)
    one, same, other = (network.initial_weights(named_generator(seed, "weights")) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_sliced_variant_is_the_variant_alone() -> None:
    network = ElasticResNet(SearchSpace())
    architecture = Architecture((1, 2, 0, 3), (0.25, 0.1, 0.22, 0.18), (9, 2, 5, 2, 7))
    sliced = SlicedVariant.of(network, architecture, (0.5, 0.25))
    assert sliced.layout.shapes == network.shapes(architecture)
    assert sliced.layout.num_parameters == network.parameters(architecture) == sliced.parameters(sliced.largest)
    assert sliced.macs(sliced.narrowed(1.0)) == network.macs(architecture)
    assert sliced.classes == 100


def test_its_slices_are_nested_and_as_narrow_as_asked() -> None:
    network = ElasticResNet(SearchSpace())
    architecture = Architecture((1, 2, 0, 3), (0.25, 0.1, 0.22, 0.18), (9, 2, 5, 2, 7))
    sliced = SlicedVariant.of(network, architecture, (0.5, 0.25))
    half, quarter = (sliced.space.stage_width(sliced.narrowed(share), 3) for share in (0.5, 0.25))
    assert (half, quarter) == (408, 208), "of 816 channels, in eights"
    wide, narrow = (sliced.shapes(sliced.narrowed(share)) for share in (0.5, 0.25))
    assert list(wide) == list(narrow) == list(sliced.layout.shapes)
    for name, shape in narrow.items():
        assert all(part <= full for part, full in zip(shape, wide[name], strict=True))
    assert hash(sliced) == hash(SlicedVariant.of(network, architecture, (0.5, 0.25)))
