import asyncio
import socket
import time
from collections.abc import Iterator
from threading import Thread

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from fedfeast.server import slow_clients
from fedfeast.server.slow_clients import ImpatientProtocol

ANSWER = 64 * 1024 * 1024


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(ANSWER).encode())]})
    for part in range(1024):
        await send({"type": "http.response.body", "body": bytes(ANSWER // 1024), "more_body": part < 1023})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(slow_clients, "STALLED_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(large, http=ImpatientProtocol, ws="none", lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def seconds_until_closed(connection: socket.socket) -> float:
    connection.settimeout(5)
    started = time.monotonic()
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_headers_that_never_end(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        assert seconds_until_closed(connection) < 3


def test_a_client_that_does_not_read(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(1)
        received = 0
        connection.settimeout(5)
        try:
            while part := connection.recv(2**20):
                received += len(part)
        except ConnectionError:
            pass
        assert received < ANSWER


def test_a_client_that_reads_gets_everything_and_may_ask_again(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(2):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.settimeout(5)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(2**20)
            missing = ANSWER - len(received.partition(b"\r\n\r\n")[2])
            while missing:
                missing -= len(connection.recv(min(missing, 2**20)))
        connection.sendall(b"GET / HT")
        assert seconds_until_closed(connection) < 3
