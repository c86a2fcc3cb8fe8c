"""What is answered: metrics, page and health, as an ASGI application.

A scrape is rendered in the event loop, from what the registry holds at that moment. Requests whose state has `arrived`,
the time of the loop at which they came, share what was rendered since then.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

_log = logging.getLogger(__name__)

HEALTH_PATHS = ("/-/healthy", "/-/ready")

_KEPT = 4  # scrapes kept for those who share them: as many as there are formats in use, plain and compressed

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


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
        return scrapes.answer(_wish(request), getattr(request.state, "arrived", math.inf))

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
    """Renders scrapes. Those who were already waiting for the same when it was rendered share one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._latest: dict[_Wish, tuple[float, bytes]] = {}  # when it was begun, and what came of it

    def answer(self, wish: _Wish, arrived: float) -> Response:
        began, body = self._latest.pop(wish, (-math.inf, b""))
        if began < arrived:
            began, body = asyncio.get_running_loop().time(), self._rendered(wish)
        self._latest[wish] = began, body
        if len(self._latest) > _KEPT:
            del self._latest[next(iter(self._latest))]
        headers = {"Content-Type": wish.content_type, "Vary": "Accept, Accept-Encoding"}
        return Response(body, headers={**headers, "Content-Encoding": "gzip"} if wish.gzip else headers)

    def _rendered(self, wish: _Wish) -> bytes:
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
