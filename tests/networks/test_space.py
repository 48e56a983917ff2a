from dataclasses import replace

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, SearchSpace
from fedfeast.networks.space import round_channels

PAPER = SearchSpace()


@pytest.mark.parametrize(
    ("channels", "rounded"),
    [(6.4, 8), (12, 16), (11, 16), (12.8, 16), (19.2, 24), (4, 8), (25.6, 24), (51.2, 48)],
)
def test_round_channels(channels: float, rounded: int) -> None:
    assert round_channels(channels) == rounded


@pytest.mark.parametrize(
    ("stage", "widths"),
    [
        (-1, (8, 16, 24, 24, 32, 40, 48, 48, 56, 64)),
        (0, (16, 24, 40, 48, 64, 80, 88, 104, 112, 128)),
        (1, (24, 48, 80, 104, 128, 152, 176, 208, 232, 256)),
        (2, (48, 104, 152, 208, 256, 304, 360, 408, 464, 512)),
        (3, (104, 208, 304, 408, 512, 616, 720, 816, 920, 1024)),
    ],
)
def test_paper_widths(stage: int, widths: tuple[int, ...]) -> None:
    for index, width in enumerate(widths):
        architecture = replace(PAPER.smallest, width_indices=(index,) * 5)
        found = PAPER.stem_width(architecture) if stage < 0 else PAPER.stage_width(architecture, stage)
        assert found == width


@pytest.mark.parametrize(
    ("stage", "width_index", "expansion", "middle"),
    # The places where rounding before the divisor rule matters: without it each would be 8 less.
    [
        (0, 2, 0.22, 16),
        (0, 3, 0.18, 16),
        (0, 5, 0.22, 24),
        (0, 6, 0.10, 16),
        (1, 1, 0.18, 16),
        (1, 2, 0.22, 24),
        (1, 6, 0.10, 24),
        (2, 0, 0.18, 16),
        (2, 8, 0.18, 88),
        (3, 7, 0.22, 184),
    ],
)
def test_middle_width_is_rounded_first(stage: int, width_index: int, expansion: float, middle: int) -> None:
    architecture = Architecture((0,) * 4, (expansion,) * 4, (width_index,) * 5)
    assert PAPER.middle_width(architecture, stage) == middle


def test_largest_middle_widths() -> None:
    assert [PAPER.middle_width(PAPER.largest, stage) for stage in range(4)] == [32, 64, 128, 256]


def test_feature_sizes_round_up() -> None:
    assert PAPER.feature_sizes() == (32, 32, 16, 8, 4)
    assert replace(PAPER, image_size=64, stem_stride=2).feature_sizes() == (32, 32, 16, 8, 4)
    assert replace(PAPER, image_size=9).feature_sizes() == (9, 9, 5, 3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage_strides": (1, 2)}, "one stride per entry"),
        ({"widths": ()}, "network.widths"),
        ({"widths": (1.0, 0.5)}, "rising order"),
        ({"expansions": (0.0, 0.25)}, "network.expansions"),
        ({"depths": (-1, 0)}, "network.depths"),
        ({"stem_channels": 0}, "network.stem_channels = 0"),
        ({"stage_strides": (1, 2, 2, 0)}, "strides"),
        ({"classes": 1}, "network.classes = 1"),
    ],
)
def test_bad_spaces_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(PAPER, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture((9, 0, 0, 0), (0.1,) * 4, (0,) * 5),
        Architecture((0,) * 4, (0.11,) * 4, (0,) * 5),
        Architecture((0,) * 4, (0.1,) * 4, (10, 0, 0, 0, 0)),
        Architecture((0,) * 3, (0.1,) * 4, (0,) * 5),
    ],
)
def test_architectures_outside_are_refused(architecture: Architecture) -> None:
    with pytest.raises(InvalidInput, match="not in the network's space"):
        PAPER.validate(architecture)
