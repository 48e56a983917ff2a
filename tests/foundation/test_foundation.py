"""Units for people, and this machine."""

import os

import pytest

from fedfeast.machine import device_name, processor_and_cores, processor_name, usable_cores
from fedfeast.units import format_macs, format_seconds, name_by_macs, number_repeated


@pytest.mark.parametrize(
    ("macs", "text"),
    [(24_967_328, "24.97M"), (595_791_168, "595.8M"), (128_320, "128.3k"), (2.5e9, "2.5G"), (12, "12")],
)
def test_macs_for_people(macs: float, text: str) -> None:
    assert format_macs(macs) == text


def test_costs_that_look_alike_get_names_that_differ() -> None:
    costs = (24_967_328, 120_001_024, 120_002_048, 120_004_096, 595_791_168)
    names = name_by_macs(costs)
    assert names == ("24.97M", "120.001M", "120.002M", "120.004M", "595.8M")
    assert name_by_macs((12, 12, 13)) == ("12", "12", "13")
    assert name_by_macs(()) == ()


def test_names_that_come_again_are_numbered() -> None:
    assert number_repeated(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]


def test_this_machine_is_described() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert processor_name()
    assert processor_and_cores() == f"{processor_name()}, {os.cpu_count()} cores"
    assert device_name("cpu") == "cpu"


def test_a_system_without_a_list_of_processors_still_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.read_text", missing)
    assert processor_name()


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.0123, "0.0123 s"),
        (1.859, "1.86 s"),
        (119.0, "119 s"),
        (722.0, "12 min"),
        (5.3 * 3600, "5.3 h"),
        (47 * 3600, "47 h"),
        (3.14 * 86400, "3.1 days"),
        (1234.4 * 86400, "1,234 days"),
    ],
)
def test_durations_for_people(seconds: float, written: str) -> None:
    assert format_seconds(seconds) == written
