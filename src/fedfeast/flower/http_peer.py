"""One end of an HTTP/1.1 connection that waits for nobody without a limit."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11

CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class Limits:
    """What one connection, and all of them together, may take."""

    connections: int = 512
    header_bytes: int = 2**14
    body_bytes: int = 2**26  # Flower cuts arrays into requests of 5 MiB
    # Under way at a time: the SuperLink holds them in memory before it asks whose they are.
    all_bodies_bytes: int = 2**30
    header_seconds: float = 20.0  # until a request's header is whole; nodes drop idle connections after five
    stalled_seconds: float = 30.0  # without a byte of a body, or of room for one
    answer_seconds: float = 60.0  # until the SuperLink answers; nodes wait for 30
    exchange_seconds: float = 900.0  # a request and its answer
    linger_seconds: float = 2.0  # for a refused client to read why, before its unread bytes reset the connection


@dataclass(frozen=True)
class Refusal:
    """The answer to what does not pass."""

    status: int
    reason: str


class Peer:
    """One end of a connection that speaks HTTP/1.1, with limits on waiting."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        role: type[h11.CLIENT] | type[h11.SERVER],
        limits: Limits,
    ) -> None:
        self.reader, self.writer = streams
        self.http = h11.Connection(role, max_incomplete_event_size=limits.header_bytes)
        self.limits = limits

    async def receive(self, seconds: float) -> Any:
        """Return the next event: a header, a piece of a body, an end."""
        async with asyncio.timeout(seconds):
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(CHUNK_BYTES))
        return event

    async def send(self, *events: Any) -> None:
        """Send events, and wait while the other end reads more slowly than we write."""
        for event in events:
            self.writer.write(self.http.send(event) or b"")
        async with asyncio.timeout(self.limits.stalled_seconds):
            await self.writer.drain()

    async def send_refusal(self, refused: Refusal) -> None:
        """Answer with a status and a short sentence, the last on this connection."""
        text = f"{refused.reason}\n".encode()
        headers = [("content-type", "text/plain"), ("content-length", str(len(text))), ("connection", "close")]
        response = h11.Response(status_code=refused.status, headers=headers)
        await self.send(response, h11.Data(data=text), h11.EndOfMessage())

    async def linger(self) -> None:
        """Throw away what still comes, for a moment and within bounds."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.limits.linger_seconds):
                for _ in range(32):
                    if not await self.reader.read(CHUNK_BYTES):
                        return

    def next_cycle(self) -> bool:
        """Return whether another exchange may follow, and make ready for it."""
        done = self.http.our_state is h11.DONE and self.http.their_state is h11.DONE and not self.reader.at_eof()
        if done:
            self.http.start_next_cycle()
        return done

    async def close(self) -> None:
        """Close the connection; an end that does not hear of it is not waited for."""
        self.writer.close()
        try:
            async with asyncio.timeout(self.limits.linger_seconds):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()
