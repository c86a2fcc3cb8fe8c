"""One client's connection: uvicorn's protocol, with deadlines, a cap on all that are open, and TLS from the start."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from aes_exporter.server.turnstile import Turnstile

if TYPE_CHECKING:  # it brings the YAML library, which only those with a web config should pay for
    from aes_exporter.web.tls import Tls

_MOUTHFUL = 16 * 1024  # bytes given to h11 at once, which is also what it accepts of an unfinished request
_RESET = struct.pack("ii", 1, 0)  # linger, for no time
_REST = 1.0  # seconds since its last response after which a client counts as one that has just come


class _Stage(Enum):
    """What a connection is waiting for."""

    REQUEST = "the rest of a request"
    RESPONSE = "the client to take its response"
    IDLE = "the next request"


class Config(uvicorn.Config):
    """The settings of uvicorn, and what our connections share: limits, TLS, and the open ones, oldest first."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_connections: int,
        request_seconds: float,
        response_seconds: float,
        tls: Callable[[], Tls | None],
    ) -> None:
        super().__init__(
            app,
            http=_accepted,  # type: ignore[arg-type]  # called for every connection; a function will do
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.CRITICAL,  # below that it warns of every bad request
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
            # How many connections one turn of the loop accepts. A quarter of the cap, so that a client is read
            # before a burst of others can push it out.
            backlog=max(1, max_connections // 4),
        )
        self.max_connections = max_connections
        self.seconds = {_Stage.REQUEST: request_seconds, _Stage.RESPONSE: response_seconds}
        self.tls = tls
        self.open: dict[_Connection, None] = {}
        self.turnstile = Turnstile()


class _Connection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a deadline for every stage, and a cap on the connections open at once."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        tls: Tls | None,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._shared = config
        self._tls = tls
        self._link: asyncio.Transport | None = None
        self._watched: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answered = -math.inf
        self._has_ended = False
        self.app = self._in_turn

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the application answer a request when it is its turn, and know when it came."""
        arrived = self.loop.time()
        await self._shared.turnstile.wait(rested=arrived - self._answered > _REST)
        scope["state"]["arrived"] = arrived
        await self._shared.loaded_app(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1)  # a second response waits until the first was taken
        if self._tls is None:
            self.enter(transport)
        elif not self._tls.admits(transport.get_extra_info("peercert")):
            self.abort()

    def enter(self, link: asyncio.Transport) -> None:
        """Count this connection, and start its first deadline; with TLS that is before the handshake."""
        link.set_write_buffer_limits(high=0)  # being told to go on writing then means that everything was taken
        self._link = link
        if len(self._shared.open) >= self._shared.max_connections:
            self._make_room()
        self._shared.open[self] = None
        self.watch()

    def leave(self) -> None:
        """Count this connection no longer."""
        self._shared.open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # which uvicorn leaves running after an error
        self.leave()

    def data_received(self, data: bytes) -> None:
        if self.stage() is _Stage.IDLE and self._outdated():
            self.transport.close()
        for start in range(0, len(data), _MOUTHFUL):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _MOUTHFUL])
        self.watch()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Stay open for a client that will send nothing more, as long as it waits for responses."""
        self._has_ended = True
        answering = bool(self.cycle) and not self.cycle.response_complete
        return answering and self._tls is None  # which is closed both ways at once

    def resume_writing(self) -> None:
        super().resume_writing()
        self.watch()

    def on_response_complete(self) -> None:
        self._answered = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY or (self._has_ended and self.cycle.response_complete):
            self.transport.close()  # nobody here reads a body
        self.watch()

    def send_400_response(self, msg: str) -> None:
        if self.stage() is _Stage.RESPONSE:
            self.abort()  # in the middle of a response no other can be sent
        else:
            super().send_400_response(msg)

    def abort(self) -> None:
        """Close at once, without waiting for what was not sent."""
        self._shared.open.pop(self, None)
        if self._link is None:
            return
        if self.stage() is _Stage.RESPONSE:  # by a reset, or the kernel would go on offering what it holds for minutes
            self._link.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._link.abort()

    def _make_room(self) -> None:
        """Abort the oldest connection without a complete request, or else the oldest of all."""
        waiting = (connection for connection in self._shared.open if connection.stage() is not _Stage.RESPONSE)
        next(waiting, next(iter(self._shared.open))).abort()

    def stage(self) -> _Stage:
        """What this connection is waiting for."""
        if self.cycle and (not self.cycle.response_complete or self._unsent()):
            return _Stage.RESPONSE
        return _Stage.REQUEST if not self.cycle or self.conn.trailing_data[0] else _Stage.IDLE

    def _unsent(self) -> bool:
        """Whether there is something that the client has not taken; with TLS there are two places for it."""
        return any(each.get_write_buffer_size() for each in (self.transport, self._link) if each)

    def _outdated(self) -> bool:
        """Whether other client certificates open the door by now than did when this connection was made."""
        tls = self._shared.tls()
        return (self._tls and self._tls.clients) != (tls and tls.clients)

    def watch(self) -> None:
        """Start the deadline of a stage when it is entered; whatever happens within a stage does not extend it."""
        stage = self.stage()
        if (stage, self.cycle) == self._watched:
            return
        self._watched = (stage, self.cycle)
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = self._shared.seconds.get(stage)  # uvicorn itself minds idle connections
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.abort)


class _Secured(SSLProtocol):
    """TLS around a connection, which it shows from the start.

    `create_server(ssl=...)` does the same, but shows connections only after their handshake, so that stalled ones would
    be neither capped nor ended with our deadline, and it has one TLS context for good.
    """

    max_size = _MOUTHFUL  # of the buffer that each has; 256 KiB, if it were not said

    def __init__(self, connection: _Connection, tls: Tls, *, request_seconds: float, response_seconds: float) -> None:
        super().__init__(
            connection.loop,
            connection,
            tls.context,
            waiter=None,  # type: ignore[arg-type]  # nobody waits
            server_side=True,
            ssl_handshake_timeout=request_seconds,  # type: ignore[arg-type]  # any number will do
            ssl_shutdown_timeout=response_seconds,
        )
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as above
        self._connection.enter(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._connection.leave()  # which nobody else tells a connection whose handshake failed

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.watch()


def _accepted(
    config: Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.BaseProtocol:
    """Return the protocol of a new connection, secured as counts at this moment."""
    tls = config.tls()
    connection = _Connection(config, server_state, app_state, tls)
    if tls is None:
        return connection
    seconds = config.seconds
    return _Secured(connection, tls, request_seconds=seconds[_Stage.REQUEST], response_seconds=seconds[_Stage.RESPONSE])
