"""The site as make docs builds it: strictly, complete, and without anything from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_line import commands
from http_api import openapi
from recipe_fields import recipe_fields

import fedfeast

ROOT = Path(__file__).parents[2]
FORMER_NAMES = {"ImageOptions", "Shelf"}  # they still work, and are named nowhere


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    words += ["-c", str(ROOT / "docs/site"), "-d", str(out / "doctrees"), str(ROOT), str(out / "html")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out / "html"


def test_every_document_is_a_page(site: Path) -> None:
    documents = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    missing = [one for one in documents if not (site / one.relative_to(ROOT).with_suffix(".html")).is_file()]
    assert missing == []
    assert "docs/README.html" in (site / "index.html").read_text()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
    )
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert [file for file in files if loads.search(file.read_text())] == []


def test_references_are_complete(site: Path) -> None:
    pages = {name: (site / f"docs/reference/{name}.html").read_text() for name in ("recipe", "commands", "http")}
    for page in pages.values():
        assert "make docs writes here" not in page
    for name in fedfeast.load_recipe("digits").settings():
        assert f">{name}<" in pages["recipe"], name
    for words, _ in commands():
        assert words in re.sub(r"</span> <span[^>]*>", " ", pages["commands"]), words
    for path in openapi()["paths"]:
        assert path in pages["http"], path


def test_equations_are_drawn_by_the_browser_alone(site: Path) -> None:
    page = (site / "docs/feast.html").read_text()
    assert page.count("<math ") > 30
    assert re.search(r"<script[^>]*mathjax", page, re.IGNORECASE) is None
    assert "\\frac" not in page
    assert "$$" not in page


def test_language_models_have_a_list_and_a_text(site: Path) -> None:
    listing, text = (site / "llms.txt").read_text(), (site / "llms-full.txt").read_text()
    addresses = re.findall(r"\]\(([^)]+)\)", listing)
    assert len(addresses) > 30
    assert [one for one in addresses if not (site / one).is_file()] == []
    assert "`training.rounds`" in text, "what is made is part of it"


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/python.md").read_text()
    named = set(re.findall(r":: fedfeast\.(\w+)(?:\(\))?$", page, re.MULTILINE))
    assert set(fedfeast.__all__) - FORMER_NAMES == named


def test_every_field_of_a_recipe_says_what_it_is() -> None:
    rows = [line for line in recipe_fields().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == [], "a comment beside the field is its meaning"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_at_the_root_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_manifests_are_whole() -> None:
    page = (ROOT / "docs/containers.md").read_text()
    documents = [
        one for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) for one in yaml.safe_load_all(block)
    ]
    assert [one["kind"] for one in documents] == ["Deployment", "Service", "Job"]
    assert all(one["apiVersion"] and one["metadata"]["name"] for one in documents)
    assert documents[0]["spec"]["selector"]["matchLabels"] == documents[1]["spec"]["selector"]
