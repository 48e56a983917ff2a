import re
from importlib import resources
from typing import Any

import pytest

OURS = {file.name for file in resources.files("fedfeast.server").joinpath("page").iterdir()} - {
    "index.html",
    "docs.html",
}
SHARED = {"style.css", "charts.js", "tables.js"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/static/page.js", r"(text|application)/javascript.*"),
        ("/static/style.css", "text/css; charset=utf-8"),
        ("/static/icon.svg", r"image/svg\+xml"),
    ],
)
def test_a_file_is_sent_once(client: Any, path: str, kind: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
    assert re.fullmatch(kind, answer.headers["content-type"])
    for known in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}'):
        again = client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert (again.headers["etag"], again.headers["cache-control"]) == (answer.headers["etag"], "no-cache")
    assert client.get(path, headers={"if-none-match": '"other"'}).content == answer.content
    head = client.ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


def test_the_page_leads_to_the_reasons_for_a_difference(client: Any) -> None:
    assert 'href="differences"' in client.get("/").text
    answer = client.get("/differences")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "commit dbc4630" in answer.text
    assert "<style" not in answer.text, "the server's pages may run and style nothing inline"
    assert "<script" not in answer.text


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing.js",
        "__init__.py",
        "__pycache__",
        "index.html",
        "../api.py",
        "..%2fpage_files.py",
        "..%2fassets%2f__init__.py",
        "..%2fpage%2fpage.js",
        "%2fetc%2fpasswd",
        "%2fetc%2fpasswd.js",
        "%00.js",
        "x" * 5000 + ".js",
    ],
)
def test_nothing_else_is_sent(client: Any, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_pages_load_only_what_is_served_here(client: Any) -> None:
    assert not any(name.endswith(".py") for name in OURS)
    names = {f"static/{name}" for name in OURS | SHARED}
    loaded = set()
    elsewhere = {"./", "docs", "openapi.json", "differences"}
    for page in ("/", "/docs", "/differences"):
        loaded |= set(re.findall(r'(?:src|href)="([^"#]+)"', client.get(page).text)) - elsewhere
    assert loaded | {f"static/{name}.js" for name in ("drawing", "fairness", "in-browser", "runner", "sizes")} == names
    for name in names:
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        outside = set(re.findall(r"https?://[^\s\"'`$)]+", answer.text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, name


def test_the_security_policy_allows_no_other_host(client: Any) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
