"""Draw the pictures of docs/ anew from real runs: python docs/site/pictures.py.

Runs lie in build/pictures and are used again.
"""

import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

import fedfeast

DOCS = Path(__file__).parents[1]
WORK = DOCS.parent / "build" / "pictures"
DEMO, OTHER, LIVE = (WORK / "runs" / name for name in ("demo", "other", "live"))
STUDY = WORK / "studies" / "digits-all"
LIVE_ROUNDS = 40  # of the run whose page is pictured while it trains
PATIENCE_MS = 120_000  # of a busy machine
SHADES = 256  # as many colours as flat pages need; a third of the bytes


def main() -> None:
    """Train what is to be seen, then take the named pictures, or all of them."""
    demo = fedfeast.train("digits-ladder", out=DEMO)
    other = fedfeast.train("digits-ladder", out=OTHER, settings={"population.gamma": 0})
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in sys.argv[1:] or ("run", "study", "page", "compared", "training"):
            if name == "run":
                picture_run(browser, [demo, other])
            elif name == "study":
                picture_study(browser)
            elif name == "page":
                picture_page(browser)
            elif name == "compared":
                picture_two_runs(browser)
            else:
                picture_training(browser)


def picture_run(browser: Browser, runs: list[fedfeast.Run]) -> None:
    """Measure latencies, and picture the first run's report and its figures."""
    for run in runs:
        fedfeast.latency(run)
    fedfeast.report(runs[:1], DEMO / "report.html")
    fedfeast.draw_curves(runs[:1], DOCS / "digits-curve.png")
    drawn = DEMO / "report-pictures"
    for name, file in {
        "latency": DEMO / "latency.png",
        "history": drawn / "history.png",
        "fairness": drawn / "fairness.png",
        "coverage": drawn / "demo-coverage.png",
    }.items():
        shutil.copy(file, DOCS / f"digits-{name}.png")
    with opened(browser, (DEMO / "report.html").as_uri(), 800) as page:
        keep(page, "report")


def picture_study(browser: Browser) -> None:
    """Picture the report of the study of all methods."""
    fedfeast.study("digits-all", STUDY)
    with opened(browser, (STUDY / "report.html").as_uri(), 1000) as page:
        keep(page, "study-report")


def picture_page(browser: Browser) -> None:
    """Picture the page of a finished run: its top, all of it with a digit drawn, on a phone, and the API's page."""
    with serving(DEMO) as address:
        with opened(browser, address, 1280, 880) as page:
            keep(page, "serve-top", whole=False)
        with opened(browser, address, 1000) as page:
            draw_nought(page)
            keep(page, "serve-page")
        with opened(browser, address, 390, 1800) as page:
            keep(page, "serve-phone", whole=False)
        with opened(browser, f"{address}docs", 800, 640) as page:
            keep(page, "serve-api", whole=False)
        with opened(browser, address, 1280) as page:
            draw_nought(page)
            picture_in_browser(page)


def picture_two_runs(browser: Browser) -> None:
    """Picture the curves of two runs."""
    with serving(DEMO, OTHER) as address, opened(browser, address, 900, 619) as page:
        page.locator("#choose").evaluate("box => box.scrollIntoView()")
        page.evaluate("scrollBy(0, -70)")  # below the bar with the runs
        keep(page, "serve-compare", whole=False)


def picture_training(browser: Browser) -> None:
    """Picture a run while it trains."""
    shutil.rmtree(LIVE, ignore_errors=True)
    words = ["train", "digits-ladder", "--out", str(LIVE), "--set", f"training.rounds={LIVE_ROUNDS}"]
    with subprocess.Popen([sys.executable, "-m", "fedfeast", *words, "--set", "evaluation.every_rounds=5"]) as training:
        while not (LIVE / "recipe.toml").exists() and training.poll() is None:
            time.sleep(0.1)
        with serving(LIVE) as address, opened(browser, address, 1280, 1855, dark=True) as page:
            reached = re.compile(rf"Round [23]\d of {LIVE_ROUNDS}")
            expect(page.locator("#progress-text")).to_have_text(reached, timeout=PATIENCE_MS)
            keep(page, "serve-training", whole=False, width=900)


def picture_in_browser(page: Page) -> None:
    """Picture every size timed in the visitor's browser, where its runtime is there."""
    panel = page.locator("#in-browser")
    if not panel.is_visible():
        print("serve-browser.png is left as it is: fedfeast browser-runtime fetches what it needs")
        return
    page.get_by_role("button", name="Run them here").click()
    page.locator("#in-browser-run", has_text="Run them again").wait_for(timeout=PATIENCE_MS)
    page.locator("#in-browser-limit").fill("1")
    page.locator("#in-browser-limit").press("Enter")
    panel.screenshot(path=DOCS / "serve-browser.png")
    shrink(DOCS / "serve-browser.png")


def draw_nought(page: Page) -> None:
    """Draw a nought on the pad, and wait for what every size sees in it."""
    pad = page.locator("#drawing")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    assert box is not None
    turns = [2 * math.pi * step / 24 for step in range(25)]
    places = [
        (
            box["x"] + box["width"] * (0.5 + 0.24 * math.sin(turn)),
            box["y"] + box["height"] * (0.5 - 0.36 * math.cos(turn)),
        )
        for turn in turns
    ]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()
    answers = page.locator("#answers tbody tr")
    expect(answers.filter(has_text=" ms")).to_have_count(answers.count(), timeout=PATIENCE_MS)


@contextmanager
def serving(*runs: Path) -> Iterator[str]:
    """Serve runs on a free port and give the address."""
    command = [sys.executable, "-m", "fedfeast", "serve", *map(str, runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[1]
        finally:
            server.terminate()


@contextmanager
def opened(browser: Browser, address: str, width: int, height: int = 900, dark: bool = False) -> Iterator[Page]:
    """Open a page and wait until it stands still."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(2500)
    yield page
    context.close()


def keep(page: Page, name: str, whole: bool = True, width: int | None = None) -> None:
    """Keep a picture of a page among the documents, all of it or what is in sight, scaled down to a width."""
    if whole:
        page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=DOCS / f"{name}.png", full_page=whole)
    shrink(DOCS / f"{name}.png", width)


def shrink(file: Path, width: int | None = None) -> None:
    """Write a picture of a page in few colours."""
    picture = Image.open(file).convert("RGB")
    if width is not None:
        picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
    shades = Image.new("P", (1, 1))
    shades.putpalette(shades_of(np.asarray(picture).reshape(-1, 3)).astype(np.uint8).tobytes())
    picture.quantize(palette=shades, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


def shades_of(pixels: np.ndarray) -> np.ndarray:
    """Return the most frequent colours as they are, and of the others those that are farthest from all chosen ones."""
    colours, counts = np.unique(pixels.astype(float), axis=0, return_counts=True)
    colours = colours[np.argsort(-counts)]
    chosen, rare = colours[: SHADES // 2], colours[SHADES // 2 :]
    if not len(rare):
        return chosen
    distances = np.linalg.norm(rare[:, None] - chosen[None], axis=2).min(axis=1)
    while len(chosen) < SHADES:
        farthest = rare[distances.argmax()]
        chosen = np.vstack([chosen, farthest])
        distances = np.minimum(distances, np.linalg.norm(rare - farthest, axis=1))
    return chosen


if __name__ == "__main__":
    main()
