"""The compared methods' ResNet that goes into bundles, against the one that is trained."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedfeast.networks import Level, ResNet
from fedfeast.serving.families import resnet

SMALL = ResNet((6, 10, 12), (2, 1, 2), (1, 2, 2), image_size=9, image_channels=2, classes=5)
EXITS = replace(SMALL, early_exits=True, stem_stride=2)


@pytest.mark.parametrize(
    ("network", "level"),
    [
        pytest.param(SMALL, Level((6, 10, 12), (3,)), id="whole"),
        pytest.param(replace(SMALL, activation="before"), Level((3, 5, 6), (3,)), id="narrow, activated before"),
        pytest.param(EXITS, Level((2, 4), (2,)), id="an early exit"),
        pytest.param(EXITS, Level((2, 4, 5), (1, 2, 3)), id="several exits, the last is served"),
    ],
)
def test_the_file_computes_what_was_trained(check_family: Callable[..., None], network: ResNet, level: Level) -> None:
    check_family(resnet, network, level)
