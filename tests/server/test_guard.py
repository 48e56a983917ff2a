from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest
from starlette.types import Receive, Scope, Send

from fedfeast.server import guard
from fedfeast.server.counters import Counters
from fedfeast.server.guard import MOST_BODY_BYTES, Guard

Ask = Callable[..., httpx.Response]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with how many bytes came."""
    total, more = 0, True
    while more:
        message = await receive()
        total += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(total).encode()})


@pytest.fixture
def ask(client_of: Any) -> Ask:
    """Ask a guarded echo, without a token unless one is given."""

    def answer(method: str = "GET", path: str = "/api/run", token: str | None = None, **more: Any) -> httpx.Response:
        response: httpx.Response = client_of(Guard(echo, Counters(), token)).ask(method, path, **more)
        return response

    return answer


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        ("Basic right", 401),
        ("Bearer rightly", 401),
        ("Bearer caf\u00e9", 401),
        ("Bearer right", 200),
        ("bearer right", 200),
    ],
)
def test_the_token(ask: Ask, header: str | None, status: int) -> None:
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    answer = ask(token="right", headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["detail"].startswith("this server wants a token")


@pytest.mark.parametrize("path", ["/api/choose", "/models/x.onnx", "/metrics"])
def test_what_needs_a_token(ask: Ask, path: str) -> None:
    assert ask(path=path, token="right").status_code == 401


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js", "/healthz"])
def test_what_needs_none(ask: Ask, path: str) -> None:
    assert ask(path=path, token="right").status_code == 200


def test_a_body_within_its_limit(ask: Ask) -> None:
    assert ask("POST", content=bytes(MOST_BODY_BYTES)).text == str(MOST_BODY_BYTES)


def test_a_body_that_says_it_is_too_large(ask: Ask) -> None:
    answer = ask("POST", content=bytes(MOST_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "the body has more than 4,194,304 bytes: send a smaller one."


def test_a_body_that_is_too_large_without_saying_so(ask: Ask) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MOST_BODY_BYTES // 2**20 + 1):
            yield bytes(2**20)

    assert ask("POST", content=parts()).status_code == 413


def test_a_body_that_never_comes(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)

    async def parts() -> AsyncIterator[bytes]:
        yield b"x"
        await anyio.sleep(1)
        yield b"y"

    assert ask("POST", content=parts()).status_code == 408


def test_every_answer_has_safe_headers_and_is_counted(client_of: Any) -> None:
    counters = Counters()
    answer = client_of(Guard(echo, counters)).ask("BREW", "/somewhere")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    assert 'fedfeast_requests_total{method="other",route="other",status="200"} 1' in counters.text().decode()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("[::1]:8765", 200),
        ("rebound.example.org", 421),
        ("rebound.example.org:8765", 421),
        ("127.0.0.1.example.org", 421),
        ("localhost:8765:80", 421),
        ("", 421),
    ],
)
def test_a_server_for_this_machine_answers_to_its_own_names_alone(client_of: Any, host: str, status: int) -> None:
    names = frozenset({"localhost", "127.0.0.1", "[::1]"})
    answer = client_of(Guard(echo, Counters(), None, names)).get("/", headers={"host": host})
    assert answer.status_code == status
    if status == 421:
        assert answer.json()["detail"].startswith("this server answers to 127.0.0.1 or [::1] or localhost alone")
