"""A real Chromium; whatever a page complains of, and whatever it asks of others, fails the test."""

import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

PATIENCE_MS = 30_000  # a busy machine builds networks slowly
expect.set_options(timeout=PATIENCE_MS)


class Opened(NamedTuple):
    page: Page
    complaints: list[str]
    asked: list[str]


class Visitor:
    """Opens pages, and keeps what they say and ask."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.opened: list[Opened] = []
        self.contexts: list[BrowserContext] = []

    def open(self, address: str, width: int = 1280, scheme: str = "light", complaints_expected: bool = False) -> Page:
        context = self._browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        self.contexts.append(context)
        page = context.new_page()
        opened = Opened(page, [], [])
        if not complaints_expected:
            self.opened.append(opened)
        page.on("console", lambda said: opened.complaints.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("request", lambda request: opened.asked.append(request.url))
        page.goto(address)
        return page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "the tests of the page need Chromium: make chromium installs it where apt-get can"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, serve: object) -> Iterator[Visitor]:
    """Who leaves before the servers of the test end."""
    visitor = Visitor(browser)
    yield visitor
    for page, complaints, asked in visitor.opened:
        assert complaints == []
        home = page.url.split("/")[:3]
        assert all(url.split("/")[:3] == home or url.startswith(("blob:", "data:")) for url in asked), asked
    for context in visitor.contexts:
        context.close()
