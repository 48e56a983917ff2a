"""Units for people, and this machine."""

import os

import pytest

from fedfeast.machine import device_name, processor_and_cores, processor_name, usable_cores
from fedfeast.units import format_macs


@pytest.mark.parametrize(
    ("macs", "text"),
    [(24_967_328, "24.97M"), (595_791_168, "595.8M"), (128_320, "128.3k"), (2.5e9, "2.5G"), (12, "12")],
)
def test_macs_for_people(macs: float, text: str) -> None:
    assert format_macs(macs) == text


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
