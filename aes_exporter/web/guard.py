"""What stands before the application: headers for every response, the rate limit, and the password.

In and out: ASGI. The web config in force counts for each request. Nothing of what a client sent is logged or sent back.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from aes_exporter.web.passwords import Passwords, TooBusyError
from aes_exporter.web.settings import RateLimit, WebConfig

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_EXTRA_HEADERS = {
    HTTPStatus.UNAUTHORIZED: [(b"www-authenticate", b'Basic realm="aes-exporter"')],
    HTTPStatus.SERVICE_UNAVAILABLE: [(b"retry-after", b"10")],
}


class Guard:
    """An ASGI application that lets through to another what the web config allows; `open_paths` need no password."""

    def __init__(
        self,
        app: App,
        config: Callable[[], WebConfig],
        *,
        open_paths: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._config = config
        self._open_paths = open_paths
        self._passwords = Passwords()
        self._limiter = _Limiter(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application answer it."""
        config = self._config()
        send = _with_headers(send, config.headers)
        refusal = await self._refusal(config, scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _answer(send, refusal)

    async def _refusal(self, config: WebConfig, scope: Scope) -> HTTPStatus | None:
        if config.rate_limit and not self._limiter.allows(config.rate_limit):
            return HTTPStatus.TOO_MANY_REQUESTS
        if not config.users or scope["path"] in self._open_paths:
            return None
        try:
            credentials = _credentials(scope["headers"])
            if credentials and await self._passwords.accept(config.users, *credentials):
                return None
        except TooBusyError:
            return HTTPStatus.SERVICE_UNAVAILABLE
        return HTTPStatus.UNAUTHORIZED


class _Limiter:
    """A token bucket, full at first, and again when its limit is another one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._limit: RateLimit | None = None
        self._tokens, self._counted = 0.0, 0.0

    def allows(self, limit: RateLimit) -> bool:
        """Take a token, if there is one."""
        now = self._clock()
        if limit != self._limit:
            self._limit, self._tokens, self._counted = limit, float(limit.burst), now
        self._tokens = min(limit.burst, self._tokens + (now - self._counted) / limit.interval_seconds)
        self._counted = now
        allowed = self._tokens >= 1
        self._tokens -= allowed
        return allowed


def _credentials(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
    """Return name and password from the first header Authorization, None where it holds none."""
    value = next((value for name, value in headers if name.lower() == b"authorization"), b"")
    scheme, _, encoded = value.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        return None
    return (name, password) if colon else None


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a `send` that sets these headers in the response, in place of any that the application set."""
    ours = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    names = {name for name, _ in ours}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message["headers"] if name.lower() not in names]
            message["headers"] = [*others, *ours]
        await send(message)

    return sending if ours else send


async def _answer(send: Send, status: HTTPStatus) -> None:
    body = f"{status.phrase}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *_EXTRA_HEADERS.get(status, ()),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
