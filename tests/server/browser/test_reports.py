"""Reports in a browser: the same charts as the page's, from one file that asks nobody for anything."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import fedfeast


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (360, "dark")])
def test_a_runs_report_draws_its_charts(visitor: Any, trained: Path, tmp_path: Path, width: int, scheme: str) -> None:
    page_file = fedfeast.report([fedfeast.Run.open(trained)], tmp_path / "report.html")[0]
    page = visitor.open(page_file.as_uri(), width=width, scheme=scheme)
    expect(page.locator(".chart > svg")).to_have_count(6)
    expect(page.locator(".chart > svg").first).to_contain_text("inference cost (MACs per example, log scale)")
    expect(page.locator(".chart > svg").first.locator("circle.dot")).to_have_count(8)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 23, 29)") == (scheme == "dark")
    text = page_file.read_text()
    assert len(text) < 200_000
