import tomllib
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.flower.app import FILES, write_app
from fedfeast.version import VERSION

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_app_is_written_as_the_repository_has_it(tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    assert {file.name for file in (tmp_path / "app").iterdir()} == set(FILES)
    for name in FILES:
        assert (tmp_path / "app" / name).read_text() == (DEPLOY / name).read_text(), name
    assert tomllib.loads((DEPLOY / "pyproject.toml").read_text())["project"]["version"] == VERSION
    assert f"\nversion: {VERSION}\n" in (DEPLOY.parent / "CITATION.cff").read_text()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InvalidInput, match=str(tmp_path)):
        write_app(tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
