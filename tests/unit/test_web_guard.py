"""The guard in front of an application: who gets through, what the others are told, and which headers go with it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace

import pytest

from aes_exporter.web.guard import Guard, Message, Receive, Scope, Send
from aes_exporter.web.settings import RateLimit, WebConfig
from tests.certificates import ALICE

OPEN = WebConfig(tls=None, users={}, headers={}, rate_limit=None)
CLOSED = replace(OPEN, users={b"alice": ALICE.encode(), "é".encode(): ALICE.encode()})


def basic(credentials: str, scheme: str = "Basic") -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"{scheme} ".encode() + base64.b64encode(credentials.encode()))]


@dataclass
class Guarded:
    """An application behind a guard, and what it takes to ask it."""

    config: WebConfig
    open_paths: tuple[str, ...] = ()
    now: float = 0.0
    headers: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.guard = Guard(self._app, lambda: self.config, open_paths=self.open_paths, clock=lambda: self.now)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/x"), (b"x-frame-options", b"sameorigin")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"metrics"})

    async def ask(self, headers: list[tuple[bytes, bytes]] | None = None, path: str = "/metrics") -> tuple[int, bytes]:
        """Return status and body, and keep the headers."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("nothing to receive")

        await self.guard({"type": "http", "path": path, "headers": headers or []}, receive, send)
        assert len({name for name, _ in sent[0]["headers"]}) == len(sent[0]["headers"])
        self.headers = dict(sent[0]["headers"])
        return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize("config", [OPEN, CLOSED])
async def test_the_right_password(config: WebConfig) -> None:
    """Without users everybody gets through, with users those who know a password; a user's name may be any text."""
    guarded = Guarded(config)
    for headers in (basic("alice:wonderland"), basic("é:wonderland"), basic("alice:wonderland", "bASIC")):
        assert await guarded.ask(headers) == (200, b"metrics")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        basic("alice:wrong"),
        basic("bob:wonderland"),
        basic("alice:wonderland "),
        basic("alice"),
        basic("wonderland:alice"),
        basic(":"),
        basic("alice:wonderland", "Bearer"),
        [(b"authorization", b"Basic")],
        [(b"authorization", b"")],
        [(b"authorization", b"Basic \xff\xfe")],
        [(b"authorization", b"Basic YWxpY2U6d29uZGVybGFuZA")],  # without its padding
        [(b"authorization", b"Basic!YWxpY2U6d29uZGVybGFuZA==")],
        [*basic("alice:wrong"), *basic("alice:wonderland")],
    ],
)
async def test_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Everything else is a 401 that names the scheme and nothing of what was sent; there is no path without."""
    guarded = Guarded(CLOSED)
    for path in ("/metrics", "/", "/-/healthy", "/-/ready", "/nothing", ""):
        assert await guarded.ask(headers, path) == (401, b"Unauthorized\n")
        assert guarded.headers[b"www-authenticate"] == b'Basic realm="aes-exporter"'


async def test_open_paths() -> None:
    """Paths that are open need no password, and only exactly those."""
    guarded = Guarded(CLOSED, open_paths=("/-/healthy", "/-/ready"))
    asked = ("/-/healthy", "/-/ready", "/-/healthy/", "//-/healthy", "/-/HEALTHY", "/metrics", "/")

    assert [(await guarded.ask(path=path))[0] for path in asked] == [200, 200, 401, 401, 401, 401, 401]


async def test_the_config_in_force_counts() -> None:
    """A change of users counts for the next request."""
    guarded = Guarded(CLOSED)
    assert (await guarded.ask(basic("alice:wonderland")))[0] == 200
    guarded.config = replace(CLOSED, users={b"bob": ALICE.encode()})
    assert (await guarded.ask(basic("alice:wonderland")))[0] == 401
    guarded.config = OPEN
    assert (await guarded.ask())[0] == 200


async def test_headers() -> None:
    """The headers of the config are in every response, refusals included, in place of the application's own."""
    guarded = Guarded(replace(CLOSED, headers={"X-Frame-Options": "deny", "Strict-Transport-Security": "max-age=1"}))
    for headers in (basic("alice:wonderland"), []):
        await guarded.ask(headers)
        assert guarded.headers[b"x-frame-options"] == b"deny"
        assert guarded.headers[b"strict-transport-security"] == b"max-age=1"
        assert b"content-type" in guarded.headers


async def test_rate_limit() -> None:
    """A burst passes, then one request each interval; saved up again it is no more than the burst."""
    guarded = Guarded(replace(OPEN, rate_limit=RateLimit(interval_seconds=2, burst=3)))

    async def statuses(count: int) -> list[int]:
        return [(await guarded.ask())[0] for _ in range(count)]

    assert await statuses(5) == [200, 200, 200, 429, 429]
    guarded.now += 1.9
    assert await statuses(1) == [429]
    guarded.now += 0.2
    assert await statuses(2) == [200, 429]
    guarded.now += 1000
    assert await statuses(4) == [200, 200, 200, 429]
    assert await guarded.ask() == (429, b"Too Many Requests\n")
    guarded.config = replace(OPEN, rate_limit=RateLimit(interval_seconds=2, burst=1))
    assert await statuses(2) == [200, 429]
