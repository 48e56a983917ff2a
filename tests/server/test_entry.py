import sys
from pathlib import Path

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.server.entry import serve


def test_it_is_pythons_way_in(tmp_path: Path) -> None:
    assert fedfeast.serve is serve
    with pytest.raises(InvalidInput, match="is no run folder"):
        fedfeast.serve(tmp_path, port=0)


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("fedfeast.server.") and name != serve.__module__]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InvalidInput, match=r"the server needs the uvicorn package: pip install 'fedfeast\[serve\]'"):
        serve(tmp_path)
