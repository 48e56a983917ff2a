import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedfeast.server.shown.seen import Seen
from fedfeast.server.shown.watched_run import WatchedRun


@pytest.fixture
def seen(trained: Path) -> Seen:
    return WatchedRun(trained, "run").seen


@pytest.mark.parametrize(("data", "anchors"), [("digits", 0), ("cifar100", 5)])
def test_the_papers_points(seen: Seen, data: str, anchors: int) -> None:
    about = replace(seen.about, data=data)
    assert len(about.anchors) == anchors
    assert json.dumps(about.anchors)


def test_variants_that_validated_have_a_merit(seen: Seen) -> None:
    values = {one["id"]: one["validation_value"] for one in seen.variants}
    assert seen.merits() == values
    assert len(values) == 8
