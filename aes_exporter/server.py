"""The web side: listening sockets, the ASGI application, and the server that keeps answering whatever clients do.

In: a registry, two yes-or-no functions, a page, a way to TLS. Out: HTTP. It starts no measurement, knows no metric, and
handles no signal. A scrape is rendered in the event loop, from what the registry holds at that moment.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import logging
import os
import socket
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import h11
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from aes_exporter.notation import Address

if TYPE_CHECKING:  # it brings the YAML library, which only those with a web config should pay for
    from aes_exporter.web.tls import Tls

_log = logging.getLogger(__name__)

HEALTH_PATHS = ("/-/healthy", "/-/ready")

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_QUEUE = 1024  # connections that the kernel keeps until they are accepted
_MOUTHFUL = 16 * 1024  # bytes given to h11 at once, which is also what it accepts of an unfinished request
_RESET = struct.pack("ii", 1, 0)  # linger, for no time
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ListenError(Exception):
    """An address cannot be listened on; the message is one line that names it."""


def listen(addresses: Sequence[Address]) -> list[socket.socket]:
    """Return bound, listening sockets: one for each address, or as many as a host name resolves to.

    Raises ListenError, with no socket left open, if one of the addresses cannot be had.
    """
    with ExitStack() as stack:
        sockets = []
        for address in addresses:
            try:
                sockets += [stack.enter_context(sock) for sock in _bind(address)]
            except (OSError, UnicodeError) as error:
                raise ListenError(f"cannot listen on {address}: {_reason(error)}") from error
        stack.pop_all()
    for sock in sockets:  # handed down to its connections; asyncio does not see that they are TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sockets


def _bind(address: Address) -> Iterator[socket.socket]:
    if address.host in ("", "::") and socket.has_dualstack_ipv6():
        yield socket.create_server(("::", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
        return
    if not address.host:
        _log.warning("no IPv6 on this host, listening on IPv4 only", extra={"address": str(address)})
    found = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)
    targets = list(dict.fromkeys((family, target) for family, _, _, _, target in found))
    refused: list[OSError] = []
    for family, target in targets:
        try:
            yield socket.create_server(target, family=family)
        except OSError as error:
            if family != socket.AF_INET6 or error.errno not in _NO_IPV6:
                raise
            refused.append(error)  # containers without IPv6 often still map localhost to ::1 as well
    if len(refused) == len(targets):
        raise refused[0]
    if refused:
        _log.warning("no IPv6 on this host, listening on IPv4 only", extra={"address": str(address)})


def _reason(error: Exception) -> str:
    """Return the reason alone: Python puts the address into the text of some errors."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error)


class _Exact(Route):
    """A route for one path and no other: a pattern of Starlette's also matches the path with a line break after it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if scope["path"] == self.path else (Match.NONE, {})


def application(
    *,
    registry: CollectorRegistry,
    telemetry_path: str,
    healthy: Callable[[], bool],
    ready: Callable[[], bool],
    page: Callable[[], str],
) -> Starlette:
    """Return the ASGI application: the registry at `telemetry_path`, `page()` at /, and the two health paths.

    Whatever fails while it answers is a 500 for that request, logged once for each type of error.
    """
    logged: set[type[Exception]] = set()
    scrapes = _Scrapes(registry)

    async def metrics(request: Request) -> Response:
        return await scrapes.answer(_wish(request))

    async def landing(_: Request) -> Response:
        return HTMLResponse(page(), headers=_PAGE_HEADERS)

    async def health(_: Request) -> Response:
        return _verdict(healthy(), "healthy", "not healthy: no run ended within three intervals")

    async def readiness(_: Request) -> Response:
        return _verdict(ready(), "ready", "not ready: the first run has not ended")

    async def failed(_: Request, error: Exception) -> Response:
        if type(error) not in logged:
            logged.add(type(error))
            _log.error("request failed; further errors of this type are not logged", exc_info=error)
        return PlainTextResponse("internal error, see the log of aes-exporter\n", 500)

    app = Starlette(
        routes=[
            _Exact(telemetry_path, metrics),
            _Exact("/", landing),
            *(_Exact(path, answer) for path, answer in zip(HEALTH_PATHS, (health, readiness), strict=True)),
        ],
        exception_handlers={Exception: failed},
    )
    app.router.redirect_slashes = False
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """How a client wants its scrape: which metrics (all if none is named), in which format, compressed or not."""

    names: tuple[str, ...]
    content_type: str
    encoder: Callable[[Any], bytes] = field(compare=False)  # made anew for each client; the type tells which
    gzip: bool


def _wish(request: Request) -> _Wish:
    encoder, content_type = _encoder(",".join(request.headers.getlist("accept")))
    return _Wish(
        names=tuple(parse_qs(request.scope["query_string"].decode("latin-1")).get("name[]", ())),
        encoder=encoder,
        content_type=content_type,
        gzip=_accepts_gzip(",".join(request.headers.getlist("accept-encoding"))),
    )


class _Scrapes:
    """Renders one scrape in a turn of the loop, for all who have wished for it by then.

    So a crowd of scrapes neither costs more than a few nor holds up anything else.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._rendering = asyncio.Lock()
        self._awaited: dict[_Wish, asyncio.Task[bytes]] = {}

    async def answer(self, wish: _Wish) -> Response:
        if wish not in self._awaited:
            self._awaited[wish] = asyncio.create_task(self._rendered(wish))
        body = await asyncio.shield(self._awaited[wish])
        headers = {"Content-Type": wish.content_type, "Vary": "Accept, Accept-Encoding"}
        return Response(body, headers={**headers, "Content-Encoding": "gzip"} if wish.gzip else headers)

    async def _rendered(self, wish: _Wish) -> bytes:
        async with self._rendering:
            await asyncio.sleep(0)
            del self._awaited[wish]  # who comes from now on gets a newer one
            registry = self._registry
            body = wish.encoder(registry.restricted_registry(wish.names) if wish.names else registry)
            return gzip.compress(body, compresslevel=6, mtime=0) if wish.gzip else body


def _encoder(accept: str) -> tuple[Callable[[Any], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version such as "1.x", which it cannot compare
        return choose_encoder("")


def _accepts_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() == "gzip":
            name, _, quality = parameters.replace(" ", "").partition("=")
            return name != "q" or quality.strip("0.") != ""
    return False


def _verdict(good: bool, yes: str, no: str) -> Response:
    return PlainTextResponse(f"aes-exporter is {yes if good else no}.\n", 200 if good else 503)


class _Stage(Enum):
    """What a connection is waiting for."""

    REQUEST = "the rest of a request"
    RESPONSE = "the client to take its response"
    IDLE = "the next request"


class _Config(uvicorn.Config):
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


class _Connection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a deadline for every stage, and a cap on the connections open at once."""

    def __init__(
        self,
        config: _Config,
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

    def resume_writing(self) -> None:
        super().resume_writing()
        self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
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
    config: _Config,
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


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, and without looking ten times a second for the end."""

    def __init__(self, config: _Config) -> None:
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
        self._config = _Config(
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
