"""What passes the gateway and what does not, with a small HTTP server in the SuperLink's place."""

import asyncio
import http.client
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h11
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.flower.credentials import make_server_credentials
from fedfeast.flower.gateway import Gateway, SuperLinkAddress, load_certificates, passed, refusal, run_gateway
from fedfeast.flower.http_peer import Limits
from fedfeast.flower.local_fleet import free_port

PULL = "/v1/fleet/pull-messages"
MEBIBYTE = 2**20
BRIEF = Limits(linger_seconds=0.1)


class Upstream(ThreadingHTTPServer):
    """Notes what reaches it; answers with as many bytes as it is asked for."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.seen: list[tuple[str, dict[str, str], int]] = []
        self.connections = 0
        self.hang = 0.0
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    def process_request(self, request: object, client_address: object) -> None:
        self.connections += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that ends early is no news."""


class Answering(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = left = int(self.headers["content-length"])
        while left:
            left -= len(self.rfile.read(min(left, MEBIBYTE)))
        self.server.seen.append((self.path, dict(self.headers), length))
        time.sleep(self.server.hang)
        wanted = int(self.headers.get("flwr-wanted", 2))
        self.send_response(int(self.headers.get("flwr-status", 200)))
        self.send_header("flwr-answer", "yes")
        self.send_header("location", "http://127.0.0.1/v1/control/list-runs")
        self.send_header("keep-alive", "timeout=5")
        self.send_header("content-length", str(wanted))
        self.end_headers()
        while wanted > 0:
            wanted -= self.wfile.write(bytes(min(wanted, MEBIBYTE)))

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def serving(limits: Limits | None = None, folder: Path | None = None) -> Iterator[tuple[Upstream, int, list[str]]]:
    """Run an upstream and a gateway before it, with TLS where credentials are given; give the gateway's port."""
    certificate, authority = load_certificates(folder) if folder else (None, None)
    upstream = Upstream(certificate)
    said: list[str] = []
    gateway = Gateway(SuperLinkAddress("127.0.0.1", upstream.server_port), authority, limits, said.append)
    loop = asyncio.new_event_loop()
    threads = [threading.Thread(target=upstream.serve_forever, args=(0.05,)), threading.Thread(target=loop.run_forever)]
    for thread in threads:
        thread.start()
    server = asyncio.run_coroutine_threadsafe(gateway.open("127.0.0.1", 0, certificate), loop).result(5)
    try:
        yield upstream, server.sockets[0].getsockname()[1], said
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(server), loop).result(5)
        upstream.shutdown()
        upstream.server_close()
        loop.call_soon_threadsafe(loop.stop)
        for thread in threads:
            thread.join()
        loop.close()


def speak(port: int, *pieces: bytes, seconds: float = 5.0) -> bytes:
    """Send bytes as they are; return all that comes back until the other end closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), seconds) as line:
        for piece in pieces:
            line.sendall(piece)
        with suppress(ConnectionResetError):
            while piece := line.recv(65536):
                answer += piece
    return answer


def request(target: str = PULL, method: str = "POST", **headers: str) -> h11.Request:
    named = {"host": "fleet", "content_length": "0", **headers}
    lines = [(name.replace("_", "-"), value) for name, value in named.items() if value]
    return h11.Request(method=method, target=target, headers=lines)


def test_the_fleet_api_passes() -> None:
    names = "activate-node deactivate-node send-node-heartbeat pull-messages push-messages get-run get-fab"
    for name in [*names.split(), "push-object", "pull-object", "confirm-message-received"]:
        assert refusal(request(f"/v1/fleet/{name}"), Limits()) is None


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/health",
        "/docs",
        "/openapi.json",
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/responses",
        "/v1/fleet",
        "/v1/fleet/",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/..;/control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet%2f..%2fcontrol/list-runs",
        "/v1/fleet//pull-messages",
        "//v1/fleet/pull-messages",
        "/v1//fleet/pull-messages",
        "/v1/./fleet/pull-messages",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?a=/v1/control/list-runs",
        "/v1/fleet/pull-messages#a",
        "/v1/fleet/pull-messages\\..\\..\\control",
        "/V1/FLEET/pull-messages",
        "/v1/fleetcontrol/list-runs",
        "/v1/control/list-runs?/v1/fleet/pull-messages",
        "https://127.0.0.1/v1/fleet/pull-messages",
        "http://127.0.0.1/v1/control/list-runs",
        "127.0.0.1:22",
        "*",
    ],
)
def test_no_other_path_passes(target: str) -> None:
    refused = refusal(request(target), Limits())
    assert refused is not None
    assert refused.status == 404


def test_no_other_way_of_asking_passes() -> None:
    cases = [
        (request(method="GET"), 405),
        (request(method="CONNECT"), 405),
        (request(method="post"), 405),
        (request(upgrade="h2c", connection="upgrade"), 400),
        (request(content_length=""), 411),
        (request(content_length="", transfer_encoding="chunked"), 411),
        (request(content_length="11"), 413),
    ]
    for asked, status in cases:
        refused = refusal(asked, Limits(body_bytes=10))
        assert refused is not None
        assert refused.status == status
    assert refusal(request(content_length="10"), Limits(body_bytes=10)) is None


def test_headers_about_the_connection_and_its_origin_stay_behind() -> None:
    names = (
        b"connection keep-alive te trailer upgrade proxy-authorization x-forwarded-for forwarded x-real-ip host cookie"
    )
    wanted = [(b"content-type", b"a/b"), (b"flwr-signature", b"x"), (b"accept", b"a/b")]
    assert passed([*((name, b"x") for name in names.split()), *wanted]) == wanted


def test_an_exchange_over_tls_and_one_more_on_the_same_connections(tmp_path: Path) -> None:
    files = make_server_credentials(tmp_path / "credentials", ["fleet.example.org"])
    with serving(folder=tmp_path / "credentials") as (upstream, port, said):
        context = ssl.create_default_context(cafile=files.authority)
        client = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
        headers = {"flwr-public-key": "abc", "X-Forwarded-For": "10.0.0.1", "Connection": "keep-alive, flwr-public-key"}
        for number in (1, 2):
            client.request("POST", PULL, b"12345", headers)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, bytes(2))
            assert answer.headers["flwr-answer"] == "yes"
            assert answer.headers["location"] is answer.headers["keep-alive"] is answer.headers["server"] is None
            path, received, length = upstream.seen[-1]
            assert (path, length, len(upstream.seen)) == (PULL, 5, number)
            assert {name.lower() for name in received} == {
                "host",
                "accept-encoding",
                "flwr-public-key",
                "content-length",
            }
            assert received["Host" if "Host" in received else "host"] == f"127.0.0.1:{upstream.server_port}"
        client.close()
        assert upstream.connections == 1
        assert said == []


def test_what_the_superlink_refuses_is_passed_back() -> None:
    with serving() as (_, port, _):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("POST", PULL, b"", {"flwr-status": "401"})
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (401, bytes(2))
        client.close()


def test_a_refused_request_never_reaches_the_superlink_and_ends_the_connection() -> None:
    smuggled = b"POST /v1/control/list-runs HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    with serving(BRIEF) as (upstream, port, said):
        for text, status in [
            (b"POST /v1/control/list-runs HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 404),
            (b"POST http://127.0.0.1/v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 404),
            (b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n", 404),
            (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n", 404),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404),
            (b"nonsense\r\n\r\n", 400),
            (b"POST /v1/fleet/get-run\t HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 400),
            (b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\nContent-Length : 0\r\n\r\n", 400),
            (
                b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"0\r\n\r\n" + smuggled,
                411,
            ),
            (
                b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"
                + smuggled,
                400,
            ),
            (b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 20000, 431),
        ]:
            answer = speak(port, text)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (text, answer)
            assert answer.count(b"HTTP/1.1") == 1
            assert len(answer) < 300
        assert upstream.seen == []
        assert said[0] == "refused 127.0.0.1: b'POST' b'/v1/control/list-runs'"


def test_a_second_request_behind_a_good_one_is_judged_by_itself() -> None:
    good = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    with serving(BRIEF) as (upstream, port, _):
        answer = speak(port, good + b"POST /v1/control/list-runs HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 404 " in answer
        assert [path for path, _, _ in upstream.seen] == ["/v1/fleet/get-run"]


def test_large_bodies_stream_both_ways_without_growing_memory() -> None:
    size = 192 * MEBIBYTE
    with serving(Limits(body_bytes=size, all_bodies_bytes=size)) as (upstream, port, _):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        client.request("POST", PULL, b"", {"flwr-wanted": "1"})
        client.getresponse().read()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = (bytes(MEBIBYTE) for _ in range(size // MEBIBYTE))
        client.request("POST", PULL, body, {"content-length": str(size), "flwr-wanted": str(size)})
        answer, received = client.getresponse(), 0
        while piece := answer.read(MEBIBYTE):
            received += len(piece)
        client.close()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # MiB, of all three sides
        assert (received, upstream.seen[-1][2]) == (size, size)
        assert grown < 48


def test_a_connection_that_says_nothing_or_little_is_closed() -> None:
    limits = replace(BRIEF, header_seconds=0.4, stalled_seconds=0.4)
    with serving(limits) as (upstream, port, _):
        began = time.monotonic()
        assert speak(port) == b""
        assert speak(port, b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: ") == b""
        half = speak(port, b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        assert half.startswith(b"HTTP/1.1 502 ")  # a node tries again after a 502
        assert time.monotonic() - began < 6
        assert upstream.seen == []


def test_a_superlink_that_is_late_or_gone_is_a_502() -> None:
    whole = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    with serving(replace(BRIEF, answer_seconds=0.3)) as (upstream, port, _):
        upstream.hang = 1.0
        assert speak(port, whole).startswith(b"HTTP/1.1 502 ")
        upstream.socket.close()
        assert speak(port, whole).startswith(b"HTTP/1.1 502 ")


def test_no_more_connections_than_allowed() -> None:
    with serving(replace(BRIEF, connections=2)) as (_, port, _):
        lines = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(2)]
        time.sleep(0.1)
        assert speak(port).startswith(b"HTTP/1.1 503 ")
        for line in lines:
            line.close()
        time.sleep(0.1)
        assert speak(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 404 ")


def test_no_more_bytes_under_way_than_allowed() -> None:
    """The SuperLink holds a body in memory before it asks whose it is."""
    head = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n"
    with serving(replace(BRIEF, all_bodies_bytes=100)) as (upstream, port, _):
        with socket.create_connection(("127.0.0.1", port), 5) as line:
            line.sendall(head + bytes(10))
            time.sleep(0.1)
            assert speak(port, head + bytes(60)).startswith(b"HTTP/1.1 503 ")
            line.sendall(bytes(50))
            assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.2)  # the answer's last byte, and the count
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("POST", PULL, bytes(90))
        assert client.getresponse().status == 200
        client.close()
        assert [length for _, _, length in upstream.seen] == [60, 90]


@pytest.mark.parametrize("text", ["10.0.0.7:9091", "0.0.0.0:9091", "fleet.example.org:9091"])
def test_the_superlink_is_on_this_machine(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not on this machine"):
        SuperLinkAddress.parse(text)


def test_addresses_are_read() -> None:
    assert str(SuperLinkAddress.parse("127.0.0.1:9091")) == "127.0.0.1:9091"
    assert str(SuperLinkAddress.parse("[::1]:9091")) == "[::1]:9091"
    for text in ("9091", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000"):
        with pytest.raises(InvalidInput, match=r"is no address|is not on this machine"):
            SuperLinkAddress.parse(text)


def start(folder: Path, superlink: int, port: int, tell: Callable[[str], None] = lambda text: None) -> None:
    # In a thread of its own: a browser's session in this process keeps this thread's loop.
    with ThreadPoolExecutor(1) as apart:
        apart.submit(run_gateway, folder, SuperLinkAddress("127.0.0.1", superlink), ("127.0.0.1", port), tell).result()


def test_what_hinders_a_start_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ca\.crt does not exist: make it with fedfeast fleet certificate"):
        start(tmp_path, free_port(), free_port())
    folder = tmp_path / "credentials"
    files = make_server_credentials(folder, ["fleet.example.org"])
    with pytest.raises(InvalidInput, match=r"no SuperLink listens on 127\.0\.0\.1:\d+"):
        start(folder, free_port(), free_port())
    with serving(folder=folder) as (upstream, port, _), pytest.raises(InvalidInput, match=f"port {port} is in use"):
        start(folder, upstream.server_port, port)
    make_server_credentials(tmp_path / "other", ["fleet.example.org"])
    with serving(folder=folder) as (upstream, _, _), pytest.raises(InvalidInput, match="shows another certificate"):
        start(tmp_path / "other", upstream.server_port, free_port())
    with serving() as (upstream, _, _), pytest.raises(InvalidInput, match="speaks no TLS"):
        start(folder, upstream.server_port, free_port())
    files.key.write_text("nonsense")
    with pytest.raises(InvalidInput, match="holds no certificate with its key"):
        start(folder, free_port(), free_port())
