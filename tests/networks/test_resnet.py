from collections.abc import Mapping
from dataclasses import replace
from math import ceil, prod

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.errors import InvalidInput
from fedfeast.networks import Level, ResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

AFTER, BEFORE, EXITS = ResNet(), ResNet(activation="before"), ResNet(early_exits=True)
BLOCKS = ResNet(exit_blocks=(3, 4, 5, 8))
SMALL = ResNet((6, 10, 12), (2, 1, 2), (1, 2, 2), image_size=9, image_channels=2, classes=5)
SMALL_NETWORKS = [
    pytest.param(SMALL, id="after"),
    pytest.param(replace(SMALL, early_exits=True, stem_stride=2), id="exits"),
    pytest.param(replace(SMALL, activation="before"), id="before"),
    pytest.param(replace(SMALL, exit_blocks=(1, 3, 4, 5)), id="exits after blocks"),
]


def widened(width: float) -> Level:
    return Level(tuple(ceil(channels * width) for channels in AFTER.stage_channels), (4,))


def exiting(stages: int, width: float, *, served_alone: bool = False) -> Level:
    channels = tuple(int(channels * width) for channels in EXITS.stage_channels[:stages])
    return Level(channels, (stages,) if served_alone else tuple(range(1, stages + 1)))


@pytest.mark.parametrize(
    ("width", "before", "after", "macs"),
    [
        (1, 11_218_340, 11_220_132, 555_468_800),
        (1 / 2, 2_819_844, 2_820_740, 139_322_368),
        (1 / 4, 712_628, 713_076, 35_058_176),
        (1 / 8, 182_028, 182_252, 8_878_336),
        (1 / 16, 47_480, 47_592, 2_276_480),
    ],
)
def test_heterofl_widths(width: float, before: int, after: int, macs: int) -> None:
    level = widened(width)
    assert BEFORE.parameters(level) == before
    assert AFTER.parameters(level) == after
    assert BEFORE.macs(level) == AFTER.macs(level) == macs


@pytest.mark.parametrize(
    ("classes", "parameters", "macs"),
    [(10, 11_172_170, "555.42"), (100, 11_218_340, "555.47"), (200, 11_269_640, "555.52")],
)
def test_heterofl_classes(classes: int, parameters: int, macs: str) -> None:
    network = replace(BEFORE, classes=classes)
    assert network.parameters(network.whole) == network.layout.num_parameters == parameters
    assert f"{network.macs(network.whole) / 1e6:.2f}" == macs
    assert network.convolution_macs(network.whole) == 555_417_600


@pytest.mark.parametrize(
    ("width", "macs", "parameters"),
    [
        (0.2, "23.12", 0.467),
        (0.4, "91.10", 1.822),
        (0.6, "202.99", 4.077),
        (0.8, "360.40", 7.213),
        (1, "555.47", 11.220),
    ],
)
def test_fjord_widths(width: float, macs: str, parameters: float) -> None:
    level = widened(width)
    assert f"{AFTER.macs(level) / 1e6:.2f}" == macs
    assert round(AFTER.parameters(level) / 1e6, 3) == parameters


@pytest.mark.parametrize(
    ("stages", "parameters", "macs"),
    [(1, 156_324, "152.77"), (2, 694_792, "286.99"), (3, 2_820_204, "421.23"), (4, 11_265_232, "555.47")],
)
def test_scalefl_depths(stages: int, parameters: int, macs: str) -> None:
    assert EXITS.parameters(exiting(stages, 1)) == parameters
    assert f"{EXITS.macs(exiting(stages, 1, served_alone=True)) / 1e6:.2f}" == macs


@pytest.mark.parametrize(
    ("widths", "macs", "parameters"),
    [
        ((0.7, 0.7, 0.75, 1), "72.6 137.4 237.3 555.5", "0.08 0.34 1.60 11.27"),
        ((0.65, 0.7, 0.85, 1), "63.1 137.4 300.9 555.5", None),
        ((0.4, 0.55, 0.75, 1), "23.7 86.3 237.3 555.5", "0.03 0.21 1.60 11.27"),
        ((0.4, 0.5, 0.6, 1), "23.7 72.2 149.5 555.5", "0.03 0.18 1.02 11.27"),
        ((0.35, 0.45, 0.6, 1), "18.5 56.2 149.5 555.5", None),
        ((0.4, 0.4, 0.6, 1), "23.7 45.0 149.5 555.5", None),
        ((1 / 8, 1 / 4, 1 / 2, 1), "2.6 18.3 105.8 555.5", "0.00 0.05 0.72 11.27"),
    ],
)
def test_scalefl_levels(widths: tuple[float, ...], macs: str, parameters: str | None) -> None:
    served = [exiting(stages, width, served_alone=True) for stages, width in enumerate(widths, start=1)]
    trained = [exiting(stages, width) for stages, width in enumerate(widths, start=1)]
    assert " ".join(f"{EXITS.macs(level) / 1e6:.1f}" for level in served) == macs
    if parameters is not None:
        assert " ".join(f"{EXITS.parameters(level) / 1e6:.2f}" for level in trained) == parameters


def test_scalefl_smallest_level_fits_25_million_macs() -> None:
    assert exiting(1, 0.4).channels == (25,)
    assert EXITS.macs(exiting(1, 0.4)) < 25e6 < EXITS.macs(Level((26,), (1,)))


def test_fiarse_masks_everything_but_norms() -> None:
    norms = sum(prod(shape) for name, shape in AFTER.layout.shapes.items() if name.endswith((".scale", ".shift")))
    assert norms == 9_600
    assert AFTER.layout.num_parameters - norms == 11_210_532


@pytest.mark.parametrize(
    ("network", "level"),
    [
        (AFTER, AFTER.whole),
        (AFTER, widened(0.2)),
        (BEFORE, widened(0.25)),
        (EXITS, EXITS.whole),
        (EXITS, exiting(3, 0.6)),
        (EXITS, exiting(2, 0.5, served_alone=True)),
        (BLOCKS, BLOCKS.whole),
        (BLOCKS, Level((26, 52), (3,), (2, 1))),
        (BLOCKS, Level((39, 77, 154), (3, 4, 5), (2, 2, 1))),
        (AFTER, replace(widened(0.5), divisor=0.5)),
        (replace(AFTER, image_size=64, stem_stride=2, classes=200), AFTER.whole),
        (replace(SMALL, activation="before", image_size=15), SMALL.whole),
    ],
)
def test_macs_equal_torchs_count(network: ResNet, level: Level) -> None:
    weights = {name: torch.empty(shape, device="meta") for name, shape in network.shapes(level).items()}
    images = torch.empty(1, network.image_channels, network.image_size, network.image_size, device="meta")
    with FlopCounterMode(display=False) as counter:
        outputs = network.forward(weights, images, level, by_batch)
    assert counter.get_total_flops() / 2 == network.macs(level)
    assert [output.shape for output in outputs] == [(1, network.classes)] * len(level.exits)
    heads = sum(shape[1] * network.classes for name, shape in network.shapes(level).items() if len(shape) == 2)
    assert network.convolution_macs(level) == network.macs(level) - heads


def test_position_macs_by_tensor() -> None:
    views = AFTER.layout.views(AFTER.position_macs(AFTER.whole))
    pixels = {"stem": 32**2, "stage1": 32**2, "stage2": 16**2, "stage3": 8**2, "stage4": 4**2, "head4": 1}
    for name, view in views.items():
        free = name.endswith((".scale", ".shift", ".bias"))
        assert (view == (0 if free else pixels[name.split(".")[0]])).all(), name


@pytest.mark.parametrize(
    ("network", "level"),
    [
        (AFTER, AFTER.whole),
        (AFTER, widened(0.4)),
        (BEFORE, widened(0.5)),
        (EXITS, exiting(3, 0.6)),
        (EXITS, exiting(2, 0.5, served_alone=True)),
    ],
)
def test_position_macs_add_up_over_the_levels_own_positions(network: ResNet, level: Level) -> None:
    costs = network.position_macs(level)
    assert costs.shape == (network.layout.size,)
    own = sum(int(view.sum()) for view in network.layout.views(costs, network.shapes(level)).values())
    assert own == int(costs.sum()) == network.macs(level)


class PlainBlock(nn.Module):
    """A basic block in torch layers, written out on its own."""

    def __init__(self, incoming: int, width: int, stride: int, activation: str, projects: bool) -> None:
        super().__init__()
        self.activation, self.projects, self.divisor = activation, projects, 1.0
        self.conv1 = nn.Conv2d(incoming, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1 = plain_norm(width if activation == "after" else incoming)
        self.norm2 = plain_norm(width)
        if projects:
            self.shortcut = nn.Conv2d(incoming, width, 1, stride, bias=False)
            if activation == "after":
                self.shortcut_norm = plain_norm(width)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation == "after":
            main = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))) / self.divisor))
            side = self.shortcut_norm(self.shortcut(x)) if self.projects else x
            return torch.relu(main + side) / self.divisor
        active = torch.relu(self.norm1(x))
        side = self.shortcut(active) if self.projects else x
        total: Tensor = side + self.conv2(torch.relu(self.norm2(self.conv1(active))))
        return total


class PlainResNet(nn.Module):
    """The network of one level in torch layers, written out on its own."""

    def __init__(self, network: ResNet, level: Level) -> None:
        super().__init__()
        self.activation, self.exits, self.divisor = network.activation, level.exits, level.divisor
        incoming = level.channels[0]
        stem: dict[str, nn.Module] = {
            "conv": nn.Conv2d(network.image_channels, incoming, 3, network.stem_stride, 1, bias=False)
        }
        if self.activation == "after":
            stem |= {"norm": plain_norm(incoming), "relu": nn.ReLU()}
        self.stem = named_sequence(stem)
        self.steps: list[tuple[nn.Module, int]] = []  # every block, and the number of an exit after it or 0
        self.heads = {}
        for stage, width in enumerate(level.channels):
            blocks: dict[str, nn.Module] = {}
            for block in range((level.blocks or network.blocks)[stage]):
                first, last = block == 0, block == network.blocks[stage] - 1
                stride = network.stage_strides[stage] if first else 1
                plain = PlainBlock(incoming, width, stride, self.activation, first and stage > 0)
                plain.divisor = level.divisor
                blocks[f"block{block}"], incoming = plain, width
                number = len(self.steps) + 1 if level.blocks else (stage + 1) * last
                self.steps.append((plain, number if number in level.exits else 0))
                if number in level.exits:
                    self.heads[number] = nn.Linear(width, network.classes)
            self.add_module(f"stage{stage + 1}", named_sequence(blocks))
        for number, head in self.heads.items():
            self.add_module(f"head{number}", head)
        if self.activation == "before":
            self.final_norm = plain_norm(incoming)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x) / self.divisor
        outputs = []
        for block, number in self.steps:
            x = block(x)
            if number:
                last = torch.relu(self.final_norm(x)) if self.activation == "before" else x
                outputs.append(self.heads[number](last.flatten(2).mean(2)))
        return outputs


def plain_norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, track_running_stats=False)


def named_sequence(modules: dict[str, nn.Module]) -> nn.Sequential:
    sequence = nn.Sequential()
    for name, module in modules.items():
        sequence.add_module(name, module)
    return sequence


def plain_name(name: str) -> str:
    """The name of one of our tensors among those of the plain network."""
    for ours, plain in ((".scale", ".weight"), (".shift", ".bias")):
        if name.endswith(ours):
            return name.removesuffix(ours) + plain
    return name if name.startswith("head") else f"{name}.weight"


def plain_copy(network: ResNet, level: Level, weights: Mapping[str, Tensor]) -> PlainResNet:
    plain = PlainResNet(network, level).double()
    plain.load_state_dict({plain_name(name): weight.detach() for name, weight in weights.items()}, strict=True)
    return plain


def random_flat(network: ResNet) -> Tensor:
    """Weights whose norms and biases are not at their neutral start either."""
    start = network.initial_weights(named_generator(0, "weights")).double()
    return start + 0.1 * torch.from_numpy(named_generator(0, "noise").normal(size=start.shape))


def random_images(network: ResNet) -> Tensor:
    shape = (6, network.image_channels, network.image_size, network.image_size)
    return torch.from_numpy(named_generator(0, "images").normal(size=shape))


def small_levels(network: ResNet) -> list[Level]:
    levels = [network.whole, Level((3, 5, 7), network.whole.exits, network.whole.blocks)]
    if network.exit_blocks:
        levels += [Level((4, 5), (1, 3), (2, 1)), Level((6,), (1,), (1,)), Level((3, 5, 7), (4,), (2, 1, 1))]
    if network.activation == "after":
        levels.append(replace(levels[1], divisor=0.25))
    return [*levels, Level((4, 5), (1, 2)), Level((6, 9), (2,))] if network.early_exits else levels


@pytest.mark.parametrize("network", SMALL_NETWORKS)
def test_forward_and_gradient_equal_plain_torch_layers(network: ResNet) -> None:
    flat, images = random_flat(network), random_images(network)
    for level in small_levels(network):
        views = network.layout.views(flat, network.shapes(level))
        weights = {name: view.detach().requires_grad_() for name, view in views.items()}
        plain = plain_copy(network, level, weights)
        outputs, expected = network.forward(weights, images, level, by_batch), plain(images)
        assert len(outputs) == len(level.exits)
        for logits, expected_logits in zip(outputs, expected, strict=True):
            torch.testing.assert_close(logits, expected_logits)
        sum(logits.square().sum() for logits in outputs).backward()  # type: ignore[union-attr]
        sum(logits.square().sum() for logits in expected).backward()
        gradients = {name: parameter.grad for name, parameter in plain.named_parameters()}
        for name, weight in weights.items():
            assert weight.grad is not None
            assert weight.grad.abs().max() > 1e-6, name
            torch.testing.assert_close(weight.grad, gradients[plain_name(name)])


@pytest.mark.parametrize("network", SMALL_NETWORKS)
def test_a_narrow_level_equals_a_small_network_of_its_own(network: ResNet) -> None:
    flat, images = random_flat(network), random_images(network)
    level = Level((3, 5, 7), network.whole.exits, network.whole.blocks)
    own = replace(network, stage_channels=level.channels)
    own_flat = own.layout.zeros(torch.float64)
    narrow, copied = network.layout.views(flat, network.shapes(level)), own.layout.views(own_flat)
    assert list(narrow) == list(copied)
    for name, view in narrow.items():
        copied[name].copy_(view)
    outputs = network.forward(narrow, images, level, by_batch)
    for logits, expected in zip(outputs, own.forward(copied, images, own.whole, by_batch), strict=True):
        torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("network", SMALL_NETWORKS)
def test_forward_in_bfloat16_with_float32_norms_and_heads(network: ResNet) -> None:
    flat, images = random_flat(network).float(), random_images(network)
    for level in small_levels(network):
        exact = network.layout.views(flat, network.shapes(level))
        mixed = {name: view.bfloat16() if view.dim() == 4 else view for name, view in exact.items()}
        outputs = network.forward(mixed, images.bfloat16(), level, by_batch)
        for logits, expected in zip(outputs, network.forward(exact, images.float(), level, by_batch), strict=True):
            assert logits.dtype == torch.float32
            torch.testing.assert_close(logits, expected, atol=0.1, rtol=0.1)


def test_exits_are_views_of_one_trunk() -> None:
    network = replace(SMALL, early_exits=True)
    weights, images = network.layout.views(random_flat(network)), random_images(network)
    every = network.forward(weights, images, network.whole, by_batch)
    for stages in (1, 2, 3):
        (alone,) = network.forward(weights, images, Level(network.stage_channels[:stages], (stages,)), by_batch)
        torch.testing.assert_close(alone, every[stages - 1])


def test_exits_after_blocks_are_views_of_one_trunk() -> None:
    network = replace(SMALL, exit_blocks=(1, 3, 4, 5))
    weights, images = network.layout.views(random_flat(network)), random_images(network)
    every = network.forward(weights, images, network.whole, by_batch)
    for number, depth in enumerate(network.exit_blocks):
        (alone,) = network.forward(weights, images, network.shortened(depth, (6, 10, 12), (depth,)), by_batch)
        torch.testing.assert_close(alone, every[number])


def test_levels_that_end_after_so_many_blocks() -> None:
    shortened = [BLOCKS.shortened(depth, (8, 9, 10, 11), (depth,)) for depth in (1, 2, 3, 8)]
    assert [level.blocks for level in shortened] == [(1,), (2,), (2, 1), (2, 2, 2, 2)]
    assert [level.channels for level in shortened] == [(8,), (8,), (8, 9), (8, 9, 10, 11)]


def test_the_family_is_elastic() -> None:
    """Smallest and largest, envelopes, and levels as columns of a cache: what FEAST asks of a network."""
    half, other = AFTER.narrowed(0.5), Level((40, 60, 100, 200), (4,))
    assert AFTER.narrowed(1.0) == AFTER.largest == AFTER.whole
    assert AFTER.envelope([half, other]) == Level((40, 64, 128, 256), (4,))
    short, long = BLOCKS.shortened(3, (30, 40, 0, 0), (3,)), BLOCKS.shortened(5, (20, 50, 60, 0), (3, 5))
    assert BLOCKS.envelope([short, long]) == Level((30, 50, 60), (3, 5), (2, 2, 1))
    for network, level in ((AFTER, half), (BLOCKS, long), (AFTER, replace(half, divisor=0.5)), (EXITS, EXITS.whole)):
        network.validate(network.smallest)
        assert network.read_columns(network.columns(level)) == level
    with pytest.raises(ValueError, match="no list of whole numbers"):
        AFTER.read_columns({**AFTER.columns(half), "exits": "[4.5]"})


@pytest.mark.parametrize("width", [1 / 2, 1 / 4])
def test_dividing_after_the_last_rectifier_enlarges_features(width: float) -> None:
    level = AFTER.narrowed(width)
    assert AFTER.shapes(level) == AFTER.shapes(replace(level, divisor=width))
    assert AFTER.macs(level) == AFTER.macs(replace(level, divisor=width))


def test_initialisations_differ() -> None:
    torchs, hes = (replace(SMALL, initialisation=one) for one in ("torch", "he-normal"))
    drawn = [network.initial_weights(named_generator(0, "weights")) for network in (torchs, hes)]
    assert not torch.equal(*drawn)
    assert torchs.layout.shapes == hes.layout.shapes


def test_shapes_are_nested_and_in_the_order_of_the_whole() -> None:
    cases = [(AFTER, widened(0.4), widened(0.6)), (BEFORE, widened(1 / 8), widened(1 / 4))]
    cases += [(EXITS, exiting(2, 0.5), exiting(3, 0.6))]
    for network, smaller, larger in cases:
        for inner, outer in ((smaller, larger), (larger, network.whole)):
            inner_shapes, outer_shapes = network.shapes(inner), network.shapes(outer)
            assert list(inner_shapes) == [name for name in outer_shapes if name in inner_shapes]
            for name, shape in inner_shapes.items():
                assert all(part <= full for part, full in zip(shape, outer_shapes[name], strict=True))


def test_offsets_are_aligned() -> None:
    for network in (AFTER, BEFORE, EXITS):
        assert all(offset % 32 == 0 for offset in network.layout.offsets.values())


def test_equal_seeds_give_equal_weights() -> None:
    one, same, other = (SMALL.initial_weights(named_generator(seed, "weights")) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_whole_has_every_exit_there_is() -> None:
    assert AFTER.whole == Level((64, 128, 256, 512), (4,))
    assert EXITS.whole == Level((64, 128, 256, 512), (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": (2, 2)}, "resnet.blocks has 2 entries for 4 stages"),
        ({"stage_strides": (1, 2)}, "resnet.stage_strides has 2 entries for 4 stages"),
        ({"stage_channels": (), "blocks": (), "stage_strides": ()}, "resnet.stage_channels = \\[\\]"),
        ({"stage_channels": (64, 0, 256, 512)}, "resnet.stage_channels"),
        ({"stage_channels": (64, 128, 256, 10**9)}, "resnet.stage_channels"),
        ({"blocks": (2, 2, 2, 0)}, "resnet.blocks"),
        ({"stage_strides": (1, 2, 2, 0)}, "resnet.stage_strides"),
        ({"stage_strides": (2, 2, 2, 2)}, "stage_strides starts with 2.*resnet.stem_stride"),
        ({"stem_stride": 0}, "resnet.stem_stride = 0"),
        ({"image_size": 0}, "resnet.image_size = 0"),
        ({"classes": 1}, "resnet.classes = 1"),
        ({"activation": "during"}, 'resnet.activation = "during"'),
        ({"activation": "before", "early_exits": True}, "early exits need activation"),
        ({"activation": "before", "exit_blocks": (3, 8)}, "early exits need activation"),
        ({"exit_blocks": (3, 4)}, r"resnet.exit_blocks = \[3, 4\]: .* end with the last of all 8"),
        ({"exit_blocks": (4, 3, 8)}, r"resnet.exit_blocks = \[4, 3, 8\]: list blocks from 1 on, once"),
        ({"exit_blocks": (0, 8)}, r"resnet.exit_blocks = \[0, 8\]: list blocks from 1 on"),
        ({"exit_blocks": (3, 8), "early_exits": True}, "leave one of them out"),
    ],
)
def test_bad_networks_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(AFTER, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("channels", "exits", "message"),
    [
        ((), (), "channels are \\[\\]"),
        ((64, 0), (2,), "channels are \\[64, 0\\]"),
        ((64, 128), (), "exits are \\[\\]"),
        ((64, 128), (2, 1), "rising order"),
        ((64, 128), (2, 2), "rising order"),
        ((64, 128), (0, 2), "from 1 on"),
        ((64, 128), (1,), "last exit is 1 of 2 stages"),
        ((64, 128), (3,), "last exit is 3 of 2 stages"),
    ],
)
def test_bad_levels_are_refused(channels: tuple[int, ...], exits: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Level(channels, exits)


@pytest.mark.parametrize(
    ("blocks", "divisor", "message"),
    [
        ((2,), 1.0, "blocks are \\[2\\]: give at least 1 for every stage"),
        ((2, 0), 1.0, "blocks are \\[2, 0\\]"),
        ((2, 2), 1.0, "last exit is 3 of 4 blocks: end the blocks at the one"),
        ((2, 1), 0.0, "divisor is 0.0: give a finite number above 0"),
        ((2, 1), float("inf"), "divisor is inf"),
        ((2, 1), float("nan"), "divisor is nan"),
    ],
)
def test_bad_blocks_and_divisors_are_refused(blocks: tuple[int, ...], divisor: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Level((8, 8), (3,), blocks, divisor)


@pytest.mark.parametrize(
    ("network", "level"),
    [
        (BLOCKS, Level((64, 128), (2,))),
        (BLOCKS, Level((64,), (1,), (1,))),
        (BLOCKS, Level((64, 128), (4,), (1, 3))),
        (BLOCKS, Level((64, 128), (5,), (2, 3))),
        (AFTER, Level((64, 128, 256, 512), (8,), (2, 2, 2, 2))),
        (BEFORE, Level((32, 64, 128, 256), (4,), divisor=0.5)),
        (AFTER, Level((64, 128), (2,))),
        (AFTER, Level((64, 128, 256, 512), (1, 4))),
        (AFTER, Level((65, 128, 256, 512), (4,))),
        (EXITS, Level((64, 128, 256, 512, 512), (5,))),
    ],
)
def test_levels_outside_the_network_are_refused(network: ResNet, level: Level) -> None:
    for ask in (network.validate, network.shapes, network.macs, network.parameters, network.position_macs):
        with pytest.raises(InvalidInput, match="not in the network"):
            ask(level)
