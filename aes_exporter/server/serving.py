"""The server: accepts connections until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from aes_exporter.server.connections import Config

if TYPE_CHECKING:  # it brings the YAML library, which only those with a web config should pay for
    from aes_exporter.web.tls import Tls

_QUEUE = 1024  # connections that the kernel keeps until they are accepted


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, and without looking ten times a second for the end."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_QUEUE)
        self.ready.set()

    async def main_loop(self) -> None:
        while not self.stopping.is_set():
            await self.on_tick(0)  # renews the Date header
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), 1)


class Server:
    """Serves an ASGI application on sockets from `listen`, until it is told to stop.

    At most `max_connections` are open at once. A connection is closed that has not delivered a complete request
    `request_seconds` after it was opened or after the first byte of a later request, and one whose client has not
    taken its response after `response_seconds`. `tls()` tells how the next connection is secured; None is not at all.
    `started` is set once connections are accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_connections: int,
        request_seconds: float = 10.0,
        response_seconds: float = 10.0,
        tls: Callable[[], Tls | None] = lambda: None,
    ) -> None:
        self._config = Config(
            app,
            max_connections=max_connections,
            request_seconds=request_seconds,
            response_seconds=response_seconds,
            tls=tls,
        )
        self._uvicorn = _Uvicorn(self._config)
        self.started = self._uvicorn.ready

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until `stop`, then give responses under way a second; the sockets are closed in the end."""
        try:
            await self._uvicorn.serve(sockets=list(sockets))
        finally:
            for connection in list(self._config.open):
                connection.abort()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Let `serve` end; to be called in its event loop."""
        self._uvicorn.stopping.set()
