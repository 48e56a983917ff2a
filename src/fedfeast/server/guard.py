"""What stands before every answer: the token, the limits on bodies, safe headers, and the count."""

import asyncio
import hmac
import json
import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedfeast.server.counters import Counters

# Choice: a photograph fits, and a few at once fit into memory.
MOST_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 10.0
MOST_RANGES = 8  # of a file in one request; downloads that go on ask for one
GUARDED = ("/api/", "/models/", "/metrics")  # the page itself holds no secret, and asks for the token
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# The page loads nothing from anywhere else, and nothing else may frame it.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Wraps the application."""

    def __init__(
        self, app: ASGIApp, counters: Counters, token: str | None = None, hosts: Collection[str] | None = None
    ) -> None:
        self._app, self._counters, self._hosts = app, counters, hosts
        self._token = token.encode() if token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse what may not be answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        started = time.perf_counter()
        try:
            await self._answer(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
            self._counters.note(route, method, answer.status, time.perf_counter() - started, answer.sent_bytes)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        headers = Headers(scope=scope)
        if self._hosts is not None and host_in(headers.get("host", "")) not in self._hosts:
            # A page from elsewhere whose name was made to lead to this machine would read what it likes (rebinding).
            known = " or ".join(sorted(self._hosts))
            await answer.refuse(421, f"this server answers to {known} alone: use that, or start it with --token.", {})
            return
        if self._token is not None and scope["path"].startswith(GUARDED) and not self._is_known(headers):
            sentence = "this server wants a token: send the header Authorization: Bearer TOKEN."
            await answer.refuse(401, sentence, {"www-authenticate": 'Bearer realm="fedfeast"'})
            return
        if headers.get("range", "").count(",") >= MOST_RANGES:
            # Each would be read and answered on its own, and a kilobyte of headers names hundreds.
            await answer.refuse(416, f"at most {MOST_RANGES} ranges are answered at once: ask for fewer.", {})
            return
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            await answer.refuse(413, _too_large(), {"connection": "close"})
            return
        body = _Body(receive)
        try:
            await self._app(scope, body, answer)
        except _TooLarge:
            await answer.refuse(413, _too_large(), {"connection": "close"})
        except _TooSlow:
            sentence = f"the body did not arrive within {BODY_SECONDS:g} s: send it again."
            await answer.refuse(408, sentence, {"connection": "close"})

    def _is_known(self, headers: Headers) -> bool:
        assert self._token is not None
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)


def host_in(header: str) -> str:
    """Return the host that a Host header names, without its port."""
    name, _, port = header.strip().lower().rpartition(":")
    whole = name if name and port.isdecimal() and (name.endswith("]") or ":" not in name) else header.strip().lower()
    return whole.removesuffix(".")


class _TooLarge(Exception):
    """More came than a body may have."""


class _TooSlow(Exception):
    """A body took too long."""


class _Body:
    """Receives a request's body within its limits."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._bytes, self._whole = receive, 0, False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def __call__(self) -> Message:
        if self._whole:  # what is waited for now is the end of the connection
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise _TooSlow from None
        self._bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._bytes > MOST_BODY_BYTES:
            raise _TooLarge
        return message


class _Answer:
    """Sends an answer with safe headers, and remembers what was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.sent_bytes = 500, 0
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun, self.status = True, message["status"]
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-cache")
            message = {**message, "headers": headers.raw}
        self.sent_bytes += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, status: int, sentence: str, headers: dict[str, str]) -> None:
        """Answer with a sentence, unless an answer has begun already."""
        if self._begun:
            return
        content = json.dumps({"detail": sentence}).encode()
        every = {"content-type": "application/json", "content-length": str(len(content)), **headers}
        raw = [(name.encode(), value.encode()) for name, value in every.items()]
        await self({"type": "http.response.start", "status": status, "headers": raw})
        await self({"type": "http.response.body", "body": content})


def _too_large() -> str:
    return f"the body has more than {MOST_BODY_BYTES:,} bytes: send a smaller one."
