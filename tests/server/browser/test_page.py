import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Route, expect
from run_files import forget_sizes

import fedfeast
from fedfeast.runs import Interrupted
from fedfeast.runs.training import Silent

Serve = Callable[..., str]
LEFT = [(0.5, 0.12), (0.3, 0.25), (0.26, 0.5), (0.32, 0.78), (0.5, 0.88)]
ZERO = [*LEFT, (0.7, 0.76), (0.74, 0.5), (0.68, 0.25), (0.5, 0.12)]


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


def scrolls_sideways(page: Page) -> bool:
    wide: bool = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide


def ready_pad(page: Page) -> Locator:
    """Return the drawing pad when it listens, and when all that stands above it has its height."""
    expect(page.locator("#chosen")).to_contain_text("This device gets the")
    pad = page.locator("#drawing")
    expect(pad).to_be_visible()
    return pad


def draw(page: Page, places: list[tuple[float, float]]) -> None:
    pad = ready_pad(page)
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    assert box is not None
    placed = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
    page.mouse.move(*placed[0])
    page.mouse.down()
    for x, y in placed[1:]:
        page.mouse.move(x, y, steps=3)
    page.mouse.up()


def test_the_slider_changes_the_choice_and_the_download_is_that_of_the_api(
    visitor: Any, address: str, tmp_path: Path
) -> None:
    page = visitor.open(address)
    expect(page.locator("#state")).to_have_text("finished")
    chosen = page.locator("#chosen")
    page.locator("#budget").press("End")
    expect(chosen).to_contain_text("This device gets the 4.975M model")
    page.locator("#budget").press("Home")
    expect(chosen).to_contain_text("Nothing fits")
    page.get_by_role("button", name="Take the least: 128.3k MACs").click()
    expect(chosen).to_contain_text("This device gets the 128.3k model")
    page.locator("#budget").evaluate("slider => { slider.value = 290; slider.dispatchEvent(new Event('input')); }")
    expect(chosen).to_contain_text("This device gets the 545.9k model")
    shown = page.locator("#budget-value").input_value()
    assert re.fullmatch(r"[0-9.]+k", shown)
    answer = ask(f"{address}api/choose?max_macs={float(shown[:-1]) * 1e3}")["variant"]
    assert f"{100 * answer['test_accuracy']:.2f} %" in chosen.inner_text()
    assert page.locator("#chosen code").inner_text() == f"curl -fOJ {address}models/{answer['id']}.onnx"
    with page.expect_download() as download:
        page.locator("#chosen a[data-kind=onnx]").click()
    assert download.value.suggested_filename == "digits-545.9k.onnx"
    download.value.save_as(tmp_path / "model.onnx")
    with urllib.request.urlopen(f"{address}models/{answer['id']}.onnx") as sent:
        assert sent.headers["x-sha256"] == hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()


def test_a_budget_that_is_typed_in_parameters(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    page.get_by_role("button", name="Parameters").click()
    expect(page.locator("#curve svg")).to_contain_text("size (parameters, log scale)")
    page.locator("#budget-value").fill("50k")
    expect(page.locator("#chosen")).to_contain_text("48,578 parameters")
    page.locator("#budget-value").fill("much")
    expect(page.locator("#budget-value")).to_have_attribute("aria-invalid", "true")
    assert "the 545.9k model" in (page.locator("#budget").get_attribute("aria-valuetext") or "")


def test_charts_have_axes_with_units(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    curve = page.locator("#curve svg")
    expect(curve).to_contain_text("test accuracy (%)")
    expect(curve).to_contain_text("inference cost (MACs per example, log scale)")
    expect(curve.locator("circle.dot")).to_have_count(8)
    expect(page.locator("#fleet svg")).to_contain_text("client's budget (MACs per example, log scale)")
    expect(page.locator("#fleet-text")).to_contain_text("40 (100 %) afford at least the smallest model")
    expect(page.locator("#loss > svg")).to_contain_text("training loss")
    curve.hover(position={"x": 200, "y": 100})
    expect(page.locator("#curve .tip")).to_contain_text("MACs")


def test_a_drawn_digit_is_predicted_by_every_model(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    draw(page, ZERO)
    rows = page.locator("#answers tbody tr")
    expect(rows).to_have_count(8)
    for index in range(8):
        expect(rows.nth(index).locator("td").nth(3)).to_contain_text("ms")
    answers = [rows.nth(index).locator("td").nth(1).inner_text() for index in range(8)]
    assert answers.count("0") >= 6, answers
    page.get_by_role("button", name="Clear").click()
    expect(rows.nth(7).locator("td").nth(1)).to_have_text("–")  # noqa: RUF001 - a dash


def test_the_keyboard_draws_too(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    pad = ready_pad(page)
    pad.focus()
    pad.press(" ")
    for _ in range(9):
        pad.press("ArrowDown")
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_contain_text("ms")
    pad.press("Delete")
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_have_text("–")  # noqa: RUF001


def test_a_pad_that_is_seen_listens(visitor: Any, address: str) -> None:
    page, held = visitor.open("about:blank"), []
    page.route(
        "**/api/variants*", lambda route: held.append(route)
    )  # before the models are known, nothing can be drawn
    page.goto(address)
    while not held:
        page.wait_for_timeout(10)
    pad = page.locator("#drawing")
    assert not pad.is_visible()
    held[0].continue_()
    expect(pad).to_be_visible()
    pad.press(" ")  # at once, whatever else the page still waits for
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_contain_text("ms")


def test_an_answer_that_is_lost_is_asked_for_again(visitor: Any, address: str) -> None:
    page = visitor.open(address, complaints_expected=True)  # browsers complain of every request that fails
    asked: list[str] = []

    def lose_the_third(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 3:
            route.abort()
        else:
            route.continue_()

    page.route("**/api/predict/*", lose_the_third)
    ready_pad(page).press(" ")
    expect(page.locator("#drop-problem")).to_have_text("The server does not answer; trying again.")
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_contain_text("ms")
    expect(page.locator("#drop-problem")).to_be_hidden()
    page.context.close()


def test_an_image_of_another_size_is_refused_and_can_be_scaled(visitor: Any, address: str, tmp_path: Path) -> None:
    Image.new("L", (20, 30), 200).save(tmp_path / "large.png")
    page = visitor.open(address, complaints_expected=True)  # browsers complain of every 422
    page.locator("#file").set_input_files(tmp_path / "large.png")
    expect(page.locator("#drop-problem")).to_have_text(
        "the image has 20 x 30 pixels, and this run's networks take 8 x 8: scale it first."
    )
    page.get_by_role("button", name="Scale it to 8 x 8").click()
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_contain_text("ms")
    expect(page.locator("#drop-problem")).to_be_hidden()
    page.context.close()


@pytest.mark.parametrize("path", ["", "docs"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_in_light_and_dark(visitor: Any, address: str, path: str, scheme: str) -> None:
    page = visitor.open(f"{address}{path}", width=360, scheme=scheme)
    expect(page.locator("#variants tbody tr, .route").nth(7)).to_be_visible()
    assert not scrolls_sideways(page)
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    assert (page.evaluate(brightness) < 60) == (scheme == "dark")
    if not path:
        page.locator("#theme").click()
        assert (page.evaluate(brightness) < 60) == (scheme == "light")


def test_words_stand_out_from_their_background(visitor: Any, address: str) -> None:
    for scheme in ("light", "dark"):
        page = visitor.open(address, scheme=scheme)
        expect(page.locator("#variants tbody tr")).to_have_count(8)
        weak = page.evaluate(CONTRAST)
        assert weak == []


CONTRAST = """() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const linear = [...context.getImageData(0, 0, 1, 1).data].map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" && node.parentElement ? behind(node.parentElement) : colour;
  };
  const weak = [];
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    const words = [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!words || !node.getClientRects().length || node.closest("svg, .skip")) continue;
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) weak.push(node.textContent.trim().slice(0, 40));
  }
  return weak;
}"""


def test_several_runs_are_compared_where_their_data_are_the_same(
    visitor: Any, serve: Serve, trained: Path, tmp_path: Path
) -> None:
    for name in ("other", "elsewhere"):
        copytree(trained, tmp_path / name)
    recipe = tmp_path / "elsewhere" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('[data]\nname = "digits"', '[data]\nname = "synthetic"'))
    page = visitor.open(serve(trained, tmp_path / "other", tmp_path / "elsewhere"))
    for mark in ("circle", "path"):  # dots of the one, squares of the other, and one of each in the legend
        expect(page.locator(f"#curve {mark}.dot")).to_have_count(8 + 1)
    expect(page.locator("#curve .legend")).to_have_text("digitsother")
    page.get_by_role("button", name="other").click()
    expect(page.locator("#title")).to_have_text("other")
    expect(page.locator("#history-text")).to_contain_text("in round")


def test_a_smaller_model_that_validates_better_is_offered(
    visitor: Any, serve: Serve, validated_as: Callable[..., Path]
) -> None:
    page = visitor.open(serve(validated_as(0.2, 0.9, 0.3, 0.5, 0.6, 0.6, 0.7, 0.8)))
    expect(page.locator("#state")).to_have_text("finished")
    chosen, rule = page.locator("#chosen"), page.locator("#rule")
    page.locator("#budget").press("End")
    expect(chosen).to_contain_text("This device gets the 4.975M model")
    better = "The smaller 257.3k model has the better validation accuracy: 90.00 % against 80.00 %."
    expect(chosen).to_contain_text(better)
    expect(rule.get_by_role("button", name="takes the largest")).to_have_attribute("aria-pressed", "true")
    chosen.get_by_role("button", name="Take the best instead").click()
    expect(chosen).to_contain_text("This device gets the 257.3k model")
    expect(chosen).not_to_contain_text("better validation accuracy")
    expect(page.locator("#lead")).to_contain_text("Each device takes the best model it affords.")
    expect(page.locator("#variants tr.is-chosen")).to_contain_text("257.3k")
    assert page.evaluate(CONTRAST) == []
    rule.get_by_role("button", name="takes the largest").click()
    expect(chosen).to_contain_text(better)
    assert page.evaluate(CONTRAST) == []


def test_a_run_whose_folder_is_deleted(visitor: Any, serve: Serve, trained: Path, tmp_path: Path) -> None:
    copytree(trained, tmp_path / "deleted")
    page = visitor.open(serve(tmp_path / "deleted", trained), complaints_expected=True)  # of every 410
    expect(page.locator("#chosen")).to_contain_text("This device gets the")
    rmtree(tmp_path / "deleted")
    expect(page.locator("#state")).to_have_text("gone")
    expect(page.locator("#note")).to_have_text("The run's folder is gone.")
    expect(page.locator("#chosen")).to_have_text("This device getsNothingThe run's folder is gone.")
    expect(page.locator("#curve")).to_have_text("The run's folder is gone.")
    expect(page.locator("#variants tbody")).to_have_text("none")
    expect(page.locator("#try")).to_be_hidden()
    page.get_by_role("button", name="digits").click()
    expect(page.locator("#state")).to_have_text("finished")
    expect(page.locator("#chosen")).to_contain_text("This device gets the")
    assert not (tmp_path / "deleted").exists()
    page.context.close()


def test_a_ladder_has_models_to_choose_and_to_try_and_no_training(
    visitor: Any, serve: Serve, trained: Path, tmp_path: Path
) -> None:
    fedfeast.export_ladder(trained, tmp_path / "digits-models", 4)
    page = visitor.open(serve(tmp_path / "digits-models"))
    expect(page.locator("#state")).to_have_text("ladder")
    expect(page.locator("#title")).to_have_text("digits-models")
    expect(page.locator("#chosen")).to_contain_text("This device gets the")
    expect(page.locator("#variants tbody tr")).to_have_count(4)
    for part in ("#training", "#progress", "#fairness-box", "#sizes-box"):
        expect(page.locator(part)).to_be_hidden()
    draw(page, ZERO)
    expect(page.locator("#answers tbody tr")).to_have_count(4)
    expect(page.locator("#answers tbody tr").last).to_contain_text("ms")
    assert not scrolls_sideways(page)


def test_a_run_that_trains_is_followed(visitor: Any, serve: Serve, tmp_path: Path) -> None:
    # So many rounds that a fast machine is still at them when the page asks again, once a second.
    settings = {"training.rounds": 24, "evaluation.every_rounds": 4, "training.clients_per_round": 4}
    fedfeast.Run.create("digits", tmp_path / "live", settings)
    page = visitor.open(serve(tmp_path / "live"))
    expect(page.locator("#state")).to_have_text("waiting")
    expect(page.locator("#chosen")).to_contain_text("No model yet")
    command = [sys.executable, "-m", "fedfeast", "train", str(tmp_path / "live" / "recipe.toml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--out", str(tmp_path / "live")], env=environment, **quiet) as training:  # type: ignore[call-overload]
        under_way = re.compile(r"Round ([1-9]|1\d|2[0-3]) of 24")
        expect(page.locator("#progress-text")).to_contain_text(under_way, timeout=60_000)
        expect(page.locator("#state")).to_have_text("training")
        expect(page.locator("#live")).to_be_visible()
        expect(page.locator("#chosen")).to_contain_text("This device gets the", timeout=60_000)
        expect(page.locator("#state")).to_have_text("finished", timeout=60_000)
        expect(page.locator("#curve circle.dot")).to_have_count(8)
        assert training.wait(timeout=30) == 0


class StopAfterTwo(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt


def test_sizes_are_followed_before_a_run_has_ended(visitor: Any, serve: Serve, tmp_path: Path) -> None:
    settings = {"training.clients_per_round": 4, "evaluation.every_rounds": 1, "evaluation.sizes": "all"}
    run = fedfeast.Run.create("digits", tmp_path / "live", settings)
    with pytest.raises(Interrupted):
        run.train(StopAfterTwo())
    page = visitor.open(serve(run.folder.path))
    expect(page.locator("#sizes > svg")).to_contain_text("validation accuracy (%)")
    expect(page.locator("#sizes .legend li")).to_have_text(
        ["128.3k MACs", "347.3k MACs", "1.154M MACs", "1.777M MACs", "4.975M MACs"]
    )
    dots = page.locator("#sizes > svg circle.dot")
    expect(dots).to_have_count(2 * 5)
    # The models on offer have no test accuracies yet: those of their round's validation stand in.
    expect(page.locator("#curve > svg")).to_contain_text("validation accuracy (%)")
    expect(page.locator("#curve circle.dot")).to_have_count(8)
    last = run.folder.metrics()[-1]
    run.folder.append_metrics({**last, "round": 3})
    expect(dots).to_have_count(3 * 5)


def test_sizes_of_a_second_run_have_a_legend_and_a_look_of_their_own(
    visitor: Any, serve: Serve, trained: Path, tmp_path: Path
) -> None:
    copytree(trained, tmp_path / "other")
    metrics = tmp_path / "other" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-2]))
    page = visitor.open(serve(trained, tmp_path / "other"))
    legend, marks = page.locator("#sizes .legend li"), page.locator("#sizes > svg .dot")
    expect(legend).to_have_count(10)
    expect(legend.nth(0)).to_have_text("digits, 128.3k MACs")
    expect(legend.nth(9)).to_have_text("other, 4.975M MACs")
    expect(page.locator("#sizes > svg path[stroke-dasharray='7 4']")).to_have_count(5)
    expect(marks).to_have_count(5 * 7 + 5 * 6)
    metrics.write_text("".join(lines))  # it goes on
    expect(marks).to_have_count(5 * 7 + 5 * 7)
    page.get_by_role("button", name="other").click()
    expect(legend.nth(0)).to_have_text("other, 128.3k MACs")
    expect(legend).to_have_count(10)


def test_who_is_left_out_is_shown_by_tenths(visitor: Any, serve: Serve, trained: Path, tmp_path: Path) -> None:
    copytree(trained, tmp_path / "fleet")
    rows = [json.loads(line) for line in (tmp_path / "fleet" / "metrics.jsonl").read_text().splitlines()]
    names = [row["name"] for row in fedfeast.Run.open(trained).folder.clients()]
    for row in rows:  # as a fleet's server writes them
        *row["answered"], late = row["clients"]
        row["failed"] = {names[late]: "no answer within 9 s"}
        row["answer_seconds"] = {names[index]: 2.5 for index in row["answered"]}
    (tmp_path / "fleet" / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = visitor.open(serve(trained, tmp_path / "fleet"))
    table = page.locator("#fairness")
    expect(table.locator("tbody tr")).to_have_count(10)
    expect(page.locator("#fairness-text")).to_contain_text("Simulated clients are never late. The worst score is ")
    expect(table.locator("th").filter(has_text="late")).to_have_count(0)
    worst = fedfeast.Run.open(trained).fairness.worst
    assert worst is not None
    expect(table.locator("tbody tr").nth(worst.decile - 1)).to_contain_text(f"{worst.decile}, the worst")
    for chart in ("scores", "answers"):
        expect(page.locator(f"#fairness-{chart} .legend li")).to_have_text(["digits", "fleet"])
        expect(page.locator(f"#fairness-{chart} > svg .dot")).to_have_count(20)
    page.get_by_role("button", name="fleet").click()
    expect(table.locator("th").filter(has_text=re.compile("^(late|failed|median seconds)$"))).to_have_count(3)
    expect(table).to_contain_text("2.5")
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_a_run_that_keeps_no_sizes_has_no_chart_of_them(
    visitor: Any, serve: Serve, trained: Path, tmp_path: Path
) -> None:
    copytree(trained, tmp_path / "plain")
    forget_sizes(tmp_path / "plain")
    page = visitor.open(serve(tmp_path / "plain"))
    expect(page.locator("#score > svg")).to_be_visible()
    expect(page.locator("#sizes-box")).to_be_hidden()


def test_a_token_is_asked_for(visitor: Any, serve: Serve, trained: Path) -> None:
    page = visitor.open(serve(trained, "--token", "right"), complaints_expected=True)  # browsers complain of every 401
    for given in ("wrong", "right"):
        expect(page.locator("#token-box")).to_be_visible()
        page.locator("#token").fill(given)
        page.locator("#token").press("Enter")
    expect(page.locator("#state")).to_have_text("finished")
    expect(page.locator("#chosen code")).to_contain_text('curl -fOJ -H "Authorization: Bearer $TOKEN" http')
    with page.expect_download() as download:
        page.locator("#chosen a[data-kind=onnx]").click()
    assert download.value.suggested_filename.startswith("digits-")
    page.context.close()


def test_a_metric_of_which_less_is_better(visitor: Any, address: str) -> None:
    bits = {"name": "bits", "label": "bits per symbol", "more_is_better": False, "unit": ""}

    def of_text(route: Route) -> None:
        answer = route.fetch()
        content = answer.json()
        if "variants" in content:
            for place, one in enumerate(content["variants"]):
                one.update(test_accuracy=None, test_value=3.25 - 0.125 * place)
        else:
            content["population_score"] = 2.71828
        route.fulfill(response=answer, json={**content, "metric": bits})

    page = visitor.open(address)
    page.route(re.compile(r"/api/(run|variants)"), of_text)
    page.reload()
    expect(page.locator("#choose-title")).to_have_text("Bits per symbol at every cost")
    expect(page.locator("#curve svg")).to_contain_text("test bits per symbol (less is better)")
    expect(page.locator("#tiles")).to_contain_text("2.718mean test bits per symbol over all clients")
    expect(page.locator("#tiles")).to_contain_text("2.375best model on the test set")
    expect(page.locator("#variants thead")).to_contain_text("test bits per symbol")
    expect(page.locator("#variants tbody tr").first).to_contain_text("3.25")
    expect(page.locator("#score > svg")).to_contain_text("validation (less is better)")
    assert "accuracy" not in page.locator("main").inner_text()
