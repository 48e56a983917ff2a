import re
from typing import Any

from fedfeast.server.page import OURS, SHARED


def test_every_file_is_served_once(client: Any) -> None:
    for path, kind in {"/": "text/html", "/docs": "text/html", "/static/page.js": "text/javascript"}.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        known = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (known.status_code, known.content) == (304, b"")
    assert client.ask("HEAD", "/").status_code == 200
    assert client.get("/static/nothing.js").status_code == 404
    assert client.get("/static/../api.py").status_code == 404


def test_pages_load_only_what_is_served_here(client: Any) -> None:
    names = {f"static/{name}" for name in (*OURS, *SHARED)}
    loaded = set()
    for page in ("/", "/docs"):
        loaded |= set(re.findall(r'(?:src|href)="([^"#]+)"', client.get(page).text)) - {"./", "docs", "openapi.json"}
    assert loaded | {"static/drawing.js"} == names
    for name in names:
        text = client.get(f"/{name}").text
        outside = set(re.findall(r"https?://[^\s\"'`$)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, name
        assert client.get(f"/{name}").status_code == 200


def test_the_security_policy_allows_no_other_host(client: Any) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
