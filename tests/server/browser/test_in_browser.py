import csv
import json
import os
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page, Route, expect
from sequence_networks import small_char_model

import fedfeast
from fedfeast.server.browser.runtime import DEFAULT_FOLDER, VERSION, find_runtime
from fedfeast.serving.onnx.graph import build_onnx, default_opset
from fedfeast.serving.onnx.session import Session

Serve = Callable[..., str]
LEFT_OUT = "FEDFEAST_WITHOUT_BROWSER_RUNTIME"
RUN = """async ([version, id, examples]) => {
  const { Runner } = await import(new URL("static/runner.js", document.baseURI).href), runner = new Runner();
  await runner.start(version);
  const says = await runner.load("it", await (await fetch(`models/${id}.onnx`)).arrayBuffer());
  const outputs = [];
  for (const example of examples) outputs.push(await runner.run("it", example));
  const times = await runner.time("it");
  runner.close();
  return { says, outputs, times };
}"""


@pytest.fixture(scope="session")
def runtime() -> None:
    """Models in the browser are tested for real, unless somebody says in so many words that they shall not be."""
    if LEFT_OUT in os.environ:
        pytest.skip(f"NOT TESTED, since ${LEFT_OUT} is set: models in the browser")
    assert find_runtime() is not None, (
        f"models in the browser are tested with onnxruntime-web in {DEFAULT_FOLDER}: make browser-runtime fetches it; "
        f"without a connection set {LEFT_OUT}=1 to leave them out"
    )


@pytest.fixture(scope="session")
def digits(trained: Path) -> torch.Tensor:
    return fedfeast.Run.open(trained).federation.test.test.inputs[:8].cpu()


def variants_of(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{address}api/variants", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["variants"]
    return found


def run_all(page: Page) -> None:
    expect(page.locator("#in-browser")).to_be_visible()
    page.get_by_role("button", name="Run them here").click()
    expect(page.locator("#in-browser-run")).to_have_text("Run them again", timeout=90_000)
    expect(page.locator("#in-browser-problem")).to_be_hidden()


@pytest.mark.usefixtures("runtime")
def test_the_browser_predicts_what_onnxruntime_predicts(
    visitor: Any, address: str, digits: torch.Tensor, tmp_path: Path
) -> None:
    page = visitor.open(address)
    variants = variants_of(address)
    for variant in (variants[0], variants[-1]):
        urllib.request.urlretrieve(f"{address}models/{variant['id']}.onnx", tmp_path / "model.onnx")
        expected = Session(tmp_path / "model.onnx", threads=1)(digits)
        answer = page.evaluate(RUN, [VERSION, variant["id"], digits.flatten(1).tolist()])
        np.testing.assert_allclose(answer["outputs"], expected.numpy(), rtol=1e-4, atol=1e-4)
        assert answer["says"]["class_names"] == [str(digit) for digit in range(10)]
        assert answer["says"]["macs"] == variant["macs"]


@pytest.mark.usefixtures("runtime")
def test_an_own_network_of_tokens_runs_too(visitor: Any, address: str) -> None:
    model = small_char_model()
    content = build_onnx(model, default_opset(model), takes_pixels=True).SerializeToString()
    page, tokens = visitor.open(address), torch.arange(12).reshape(2, 6) % 7
    page.route("**/models/tokens.onnx", lambda route: route.fulfill(body=content))
    answer = page.evaluate(RUN, [VERSION, "tokens", tokens.tolist()])
    expected = Session(content, threads=1)(tokens).flatten(1)
    np.testing.assert_allclose(answer["outputs"], expected.numpy(), rtol=1e-4, atol=1e-4)
    assert len(answer["times"]) == 5
    assert min(answer["times"]) > 0


@pytest.mark.usefixtures("runtime")
def test_every_model_is_timed_and_a_limit_chooses(
    visitor: Any, address: str, digits: torch.Tensor, tmp_path: Path
) -> None:
    Image.fromarray(digits[0, 0].numpy()).save(tmp_path / "digit.png")
    page = visitor.open(address)
    page.locator("#file").set_input_files(tmp_path / "digit.png")
    run_all(page)
    variants, rows = variants_of(address), page.locator("#in-browser-rows tbody tr")
    expect(rows).to_have_count(len(variants))
    times = [float(rows.nth(place).locator("td").nth(2).inner_text().removesuffix(" ms")) for place in range(8)]
    assert all(0 < one < 10_000 for one in times)
    for place in range(8):  # here and on the server the same image is the same digit
        answer = page.locator("#answers tbody tr").nth(place)
        expect(answer.locator("td").nth(3)).to_contain_text("ms")
        seen = f"{answer.locator('td').nth(1).inner_text()} ({answer.locator('.sure span').inner_text()})"
        expect(rows.nth(place).locator("td").nth(3)).to_have_text(seen)
    limit, chosen = page.locator("#in-browser-limit"), page.locator("#in-browser-chosen")
    expect(chosen).to_contain_text("This browser gets the 4.975M model")
    in_order = sorted(times)
    place = max(range(7), key=lambda place: in_order[place + 1] / in_order[place])
    middle = (in_order[place] * in_order[place + 1]) ** 0.5  # shown times are rounded: as far from them as can be
    limit.fill(f"{middle:.4g}")
    largest = max(place for place, one in enumerate(times) if one <= middle)
    expect(chosen).to_contain_text(f"This browser gets the {variants[largest]['name']} model")
    expect(page.locator("#in-browser-rows tr.is-chosen td").first).to_have_text(variants[largest]["name"])
    with page.expect_download() as download:
        chosen.locator("a[data-kind=onnx]").click()
    assert download.value.suggested_filename == f"digits-{variants[largest]['name']}.onnx"
    chosen.get_by_role("button", name="Set the budget to").click()
    expect(page.locator("#chosen")).to_contain_text(f"This device gets the {variants[largest]['name']} model")
    limit.fill("0.0000001")
    expect(chosen).to_contain_text("Nothing is that fast here")
    limit.fill("soon")
    expect(limit).to_have_attribute("aria-invalid", "")
    with page.expect_download() as download:
        page.locator("#in-browser-csv").click()
    download.value.save_as(tmp_path / "times.csv")
    with (tmp_path / "times.csv").open(newline="") as file:
        measured = list(csv.DictReader(file))
    assert [int(one["model"]) for one in measured] == [one["macs"] for one in variants]
    assert [float(one["latency_ms"]) for one in measured] == pytest.approx(times, rel=0.01)


@pytest.mark.usefixtures("runtime")
def test_a_smaller_model_that_validates_better_is_said(
    visitor: Any, serve: Serve, validated_as: Callable[..., Path]
) -> None:
    page = visitor.open(serve(validated_as(0.2, 0.9, 0.3, 0.5, 0.6, 0.6, 0.7, 0.8)))
    run_all(page)
    chosen = page.locator("#in-browser-chosen")
    expect(chosen).to_contain_text("This browser gets the 4.975M model")
    expect(chosen.locator(".better")).to_have_text(
        "The smaller 257.3k model has the better validation accuracy: 90.00 % against 80.00 %."
    )


@pytest.mark.usefixtures("runtime")
def test_running_can_be_stopped_and_begun_again(visitor: Any, address: str) -> None:
    page, held = visitor.open("about:blank"), []
    page.route("**/models/*.onnx", lambda route: held.append(route))
    page.goto(address)
    button = page.locator("#in-browser-run")
    button.click()
    expect(button).to_have_text("Stop")
    expect(page.locator("#in-browser-rows tbody td").nth(2)).to_have_text("fetching")
    button.click()
    expect(button).to_have_text("Run them here")
    expect(page.locator("#in-browser-rows tbody td").nth(2)).to_have_text("–")  # noqa: RUF001 - a dash
    page.unroute("**/models/*.onnx")
    button.click()
    expect(page.locator("#in-browser-rows tbody td").nth(2)).to_contain_text("ms")


@pytest.mark.usefixtures("runtime")
def test_what_cannot_be_run_is_said(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    page.route("**/models/*.onnx", lambda route: route.fulfill(body=b"no model"))
    page.get_by_role("button", name="Run them here").click()
    expect(page.locator("#in-browser-problem")).to_contain_text("The models could not be run here: ")
    expect(page.locator("#in-browser-run")).to_have_text("Run them here")


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_panel_fits_a_phone(visitor: Any, address: str, scheme: str) -> None:
    page = visitor.open(address, width=360, scheme=scheme)
    expect(page.locator("#in-browser-rows tbody tr")).to_have_count(8)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_without_the_runtime_there_is_no_panel(visitor: Any, address: str) -> None:
    def answer(route: Route) -> None:
        route.fulfill(json={"status": "ok", "version": "0", "onnxruntime_web": None})

    page = visitor.open("about:blank")
    page.route("**/healthz", answer)
    page.goto(address)
    expect(page.locator("#version")).to_have_text("0")
    expect(page.locator("#chosen")).to_contain_text(re.compile("This device gets the"))
    expect(page.locator("#in-browser")).to_be_hidden()
