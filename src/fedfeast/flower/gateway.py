"""The one open port of a fleet's server: TLS, and behind it the Fleet API of a SuperLink that others cannot reach."""

import asyncio
import errno
import ipaddress
import re
import signal
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11

from fedfeast.errors import InvalidInput
from fedfeast.flower.http_peer import CHUNK_BYTES, Limits, Peer, Refusal

# Flower serves three APIs from one port, and Control, which starts apps, asks nobody for a name. No dot, no second
# slash, no percent, no query: what does not match cannot be read in two ways.
FLEET_API = re.compile(rb"/v1/fleet/[a-z]+(-[a-z]+)*")
OPERATOR_ALONE = frozenset({b"/v1/fleet/register-node", b"/v1/fleet/unregister-node"})
PASSED_HEADERS = frozenset({b"accept", b"accept-encoding", b"content-type", b"content-encoding", b"user-agent"})
PASSED_PREFIX = b"flwr-"  # who the node is, its signature, versions
REUSE_SECONDS = 4.0  # nodes ask every three; the SuperLink closes a connection that was idle for five


@dataclass(frozen=True)
class SuperLinkAddress:
    """Where the SuperLink listens, on this machine."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "SuperLinkAddress":
        """Read HOST:PORT; only a loopback address will do."""
        host, _, port = text.rpartition(":")
        host = host.strip("[]")
        if not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InvalidInput(f"--superlink {text} is no address: give HOST:PORT, e.g. 127.0.0.1:9091.")
        with suppress(ValueError):
            if host == "localhost" or ipaddress.ip_address(host).is_loopback:
                return cls(host, int(port))
        raise InvalidInput(
            f"--superlink {text} is not on this machine: start flower-superlink with --host 127.0.0.1, where only the "
            "gateway beside it reaches it."
        )

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def refusal(request: h11.Request, limits: Limits) -> Refusal | None:
    """Return why a request may not pass, or None."""
    if FLEET_API.fullmatch(request.target) is None or request.target in OPERATOR_ALONE:
        return Refusal(404, "only the Fleet API is here")
    if request.method != b"POST":
        return Refusal(405, "the Fleet API takes POST alone")
    headers = dict(request.headers)
    if b"upgrade" in headers:
        return Refusal(400, "no other protocol is spoken here")
    if b"transfer-encoding" in headers or b"content-length" not in headers:
        return Refusal(411, "a request says how long it is")
    if int(headers[b"content-length"]) > limits.body_bytes:
        return Refusal(413, f"a request has at most {limits.body_bytes} bytes")
    return None


def passed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that Flower needs: none about the connection, none about whom a request is forwarded for."""
    return [(name, value) for name, value in headers if name in PASSED_HEADERS or name.startswith(PASSED_PREFIX)]


class Gateway:
    """Passes requests for the Fleet API on to the SuperLink, bodies piece by piece; refuses all others."""

    def __init__(
        self,
        superlink: SuperLinkAddress,
        authority: ssl.SSLContext | None,
        limits: Limits | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.superlink, self.authority, self.limits, self.tell = superlink, authority, limits or Limits(), tell
        self.bytes_under_way = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, host: str, port: int, certificate: ssl.SSLContext | None) -> asyncio.Server:
        """Listen; the server that is returned is closed by stop."""
        waits = {
            "ssl_handshake_timeout": self.limits.header_seconds,
            "ssl_shutdown_timeout": self.limits.linger_seconds,
        }
        return await asyncio.start_server(
            self._serve,
            host,
            port,
            ssl=certificate,
            limit=CHUNK_BYTES,
            backlog=self.limits.connections,
            **(waits if certificate else {}),
        )

    async def stop(self, server: asyncio.Server) -> None:
        """Stop listening and end what is under way; a node tries again by itself."""
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def connect(self) -> Peer:
        """Open a connection to the SuperLink."""
        async with asyncio.timeout(self.limits.stalled_seconds):
            streams = await asyncio.open_connection(
                self.superlink.host, self.superlink.port, ssl=self.authority, limit=CHUNK_BYTES
            )
        return Peer(streams, h11.CLIENT, self.limits)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        node = Peer((reader, writer), h11.SERVER, self.limits)
        try:
            if len(self._tasks) > self.limits.connections:
                await node.send_refusal(Refusal(503, "too many connections"))
            else:
                await Conversation(self, node).hold()
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.CancelledError):
            pass  # the node is gone, or holds the line without a word, or the gateway stops
        finally:
            await node.close()
            self._tasks.discard(task)


class Conversation:
    """The exchanges on one node's connection, and the connection to the SuperLink that goes with it."""

    def __init__(self, gateway: Gateway, node: Peer) -> None:
        self.gateway, self.node, self.limits = gateway, node, gateway.limits
        self.superlink: Peer | None = None
        self.last_used = 0.0

    async def hold(self) -> None:
        """Answer requests until the connection ends."""
        try:
            while await self._exchange() and self.node.next_cycle():
                pass
        finally:
            if self.superlink is not None:
                await self.superlink.close()

    async def _exchange(self) -> bool:
        """Answer one request; return whether it was passed on to its end."""
        try:
            request = await self.node.receive(self.limits.header_seconds)
        except h11.RemoteProtocolError as error:
            await self._refuse(Refusal(error.error_status_hint, "that is no request"), "")
            return False
        if not isinstance(request, h11.Request):
            return False
        if refused := refusal(request, self.limits):
            await self._refuse(refused, f"{request.method[:20]!r} {request.target[:80]!r}")
            return False
        length = int(dict(request.headers)[b"content-length"])
        if self.gateway.bytes_under_way + length > self.limits.all_bodies_bytes:
            await self._refuse(Refusal(503, "too much at a time"), "")
            return False
        self.gateway.bytes_under_way += length
        try:
            async with asyncio.timeout(self.limits.exchange_seconds):
                await self._pass_on(request, length, await self._reach_superlink())
        except (OSError, TimeoutError, h11.ProtocolError):
            if self.node.http.our_state is h11.SEND_RESPONSE:  # else half an answer is out: closing says enough
                await self.node.send_refusal(Refusal(502, "the SuperLink does not answer"))
                await self.node.linger()
            return False
        finally:
            self.gateway.bytes_under_way -= length
        return True

    async def _pass_on(self, request: h11.Request, length: int, superlink: Peer) -> None:
        about = [("host", str(self.gateway.superlink)), ("content-length", str(length))]
        headers = [(name.encode(), value.encode()) for name, value in about]
        await superlink.send(
            h11.Request(method="POST", target=request.target, headers=[*headers, *passed(request.headers)])
        )
        while isinstance(piece := await self.node.receive(self.limits.stalled_seconds), h11.Data):
            await superlink.send(piece)
        await superlink.send(h11.EndOfMessage())
        answer = await superlink.receive(self.limits.answer_seconds)
        if not isinstance(answer, h11.Response):
            raise h11.RemoteProtocolError("the SuperLink sent no answer")
        lengths = [(name, value) for name, value in answer.headers if name == b"content-length"]
        await self.node.send(h11.Response(status_code=answer.status_code, headers=[*passed(answer.headers), *lengths]))
        while isinstance(piece := await superlink.receive(self.limits.stalled_seconds), h11.Data):
            await self.node.send(piece)
        await self.node.send(h11.EndOfMessage())
        self.last_used = asyncio.get_running_loop().time()

    async def _reach_superlink(self) -> Peer:
        idle = asyncio.get_running_loop().time() - self.last_used
        if self.superlink is None or idle > REUSE_SECONDS or not self.superlink.next_cycle():
            if self.superlink is not None:
                self.superlink.writer.close()  # nobody waits for its end while a node waits for an answer
            self.superlink = await self.gateway.connect()
        return self.superlink

    async def _refuse(self, refused: Refusal, what: str) -> None:
        whom = self.node.writer.get_extra_info("peername")
        self.gateway.tell(f"refused {whom[0] if whom else 'somebody'}: {what or refused.reason}")
        await self.node.send_refusal(refused)
        await self.node.linger()


def run_gateway(
    certificates: Path, superlink: SuperLinkAddress, address: tuple[str, int], tell: Callable[[str], None]
) -> None:
    """Listen on an address until the process is told to stop."""
    certificate, authority = load_certificates(certificates)
    asyncio.run(_run(Gateway(superlink, authority, tell=tell), certificate, address))


def load_certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what the gateway shows to nodes, and what it asks of the SuperLink, from files of fleet certificate."""
    files = [folder / name for name in ("ca.crt", "server.pem", "server.key")]
    for file in files:
        if not file.is_file():
            raise InvalidInput(f"{file} does not exist: make it with fedfeast fleet certificate HOST --out {folder}.")
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        authority = ssl.create_default_context(cafile=files[0])
        certificate.load_cert_chain(files[1], files[2])
    except ssl.SSLError as error:
        raise InvalidInput(f"{folder} holds no certificate with its key ({error.reason}): make them anew.") from error
    return certificate, authority


async def _run(gateway: Gateway, certificate: ssl.SSLContext, address: tuple[str, int]) -> None:
    await _require_superlink(gateway)
    host, port = address
    try:
        server = await gateway.open(host, port, certificate)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InvalidInput(f"port {port} is in use: stop what listens there, or give another --port.") from error
        raise InvalidInput(f"--host {host} --port {port} cannot be opened: {error.strerror}.") from error
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows, where Ctrl-C ends the process
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    gateway.tell(f"gateway on {host}:{port}; the Fleet API of the SuperLink on {gateway.superlink} and nothing else")
    await stopped.wait()
    await gateway.stop(server)


async def _require_superlink(gateway: Gateway) -> None:
    """Refuse to begin where no SuperLink answers with the fleet's certificate."""
    where = gateway.superlink
    try:
        await (await gateway.connect()).close()
    except ssl.SSLCertVerificationError as error:
        raise InvalidInput(
            f"the SuperLink on {where} shows another certificate ({error.verify_message}): start it with these files, "
            f"and make them anew where they are not for {where.host}."
        ) from error
    except ssl.SSLError as error:
        raise InvalidInput(f"what listens on {where} speaks no TLS: start flower-superlink with it.") from error
    except (OSError, TimeoutError) as error:
        raise InvalidInput(
            f"no SuperLink listens on {where}: start flower-superlink there, then the gateway."
        ) from error
