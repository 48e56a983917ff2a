"""Units for people, this machine, and a user's own code."""

import os
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.machine import device_name, processor_and_cores, processor_name, usable_cores
from fedfeast.own_code import find_own
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


def test_a_file_and_a_module_are_imported_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = []\n")
    assert find_own(f"{file}:found", "data") == []
    assert find_own(f"{file}:found", "data") is find_own(f"{file}:found", "data")
    assert find_own("pathlib:Path", "data") is Path
    assert find_own(f"{file}:missing", "data") is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.py:Mine", "method.name names the file nowhere.py, which is no Python file: give its path."),
        ("no_such_module:Mine", "method.name names the module 'no_such_module', which cannot be imported: "),
    ],
)
def test_what_is_not_there_is_named(source: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_own(source, "method.name")
    assert str(caught.value).startswith(message)
