import numpy as np
import pytest

from fedfeast.planning.outline import outline
from fedfeast.planning.timing import PassTimes, predict_time, time_passes
from fedfeast.recipes import load_recipe


def test_passes_are_measured_on_this_device() -> None:
    times = time_passes(outline(load_recipe("digits")))
    assert times.device == "cpu"
    assert [macs for macs, _ in times.measured] == [128_000, 1_153_536, 4_973_568]
    assert all(seconds > 0 for _, seconds in times.measured)


def test_the_prediction_on_hand_made_times() -> None:
    built = outline(load_recipe("digits", {"method.name": "fedavg"}))  # one pass of 128,000 MACs a step
    times = PassTimes("cpu", 1, ((0, 0.0),), intercept=0.5, slope=4 / 128_000 / 16)  # one second more per batch of 16
    expected = np.full(40, 17.0)  # two batches each
    predicted = predict_time(built, expected, times)
    assert predicted["seconds_per_round"] == pytest.approx(10 * 2 * 1.5)
    assert predicted["hours"] == pytest.approx(60 * 30 / 3600)
