import re

import pytest

from fedfeast.presentation.assets import read_asset


@pytest.mark.parametrize("name", ["style.css", "charts.js", "tables.js"])
def test_an_asset_can_stand_inside_a_page(name: str) -> None:
    text = read_asset(name)
    assert len(text) > 1000
    assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)
    assert "url(" not in text
    assert not re.search(r"@import|\bimport[ (]", text)


def test_every_colour_has_a_light_and_a_dark_value() -> None:
    names = re.findall(
        r"^\s+--(?:series-\d|grade-\d|ink|soft|line|page|card|accent|warm): (.*);$", read_asset("style.css"), re.M
    )
    assert len(names) == 22
    assert all(re.fullmatch(r"light-dark\(#\w{6}, #\w{6}\)", value) for value in names)
