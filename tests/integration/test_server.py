"""The ASGI application called directly, the listening sockets, and the server with clients that mean well."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import Metric
from starlette.applications import Starlette

from aes_exporter.notation import Address
from aes_exporter.server import ListenError, Server, application, listen


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(app: Starlette, path: str, *, method: str = "GET", query: str = "", **headers: str) -> Answer:
    """Call the application as a server would; `accept_encoding="gzip"` is the header Accept-Encoding."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
    }

    async def receive() -> NoReturn:
        raise AssertionError("the body of a request must not be read")

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Answer(
        status=sent[0]["status"],
        headers={name.decode(): value.decode() for name, value in sent[0]["headers"]},
        body=b"".join(message.get("body", b"") for message in sent),
    )


class Broken:
    """A collector with a bug."""

    def __init__(self) -> None:
        self.error: Exception = ZeroDivisionError("a bug")

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        raise self.error


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("aes_one", "First.", registry=registry).set(1)
    Counter("aes_two", "Second.", registry=registry).inc(2)
    return registry


def make(registry: CollectorRegistry, *, healthy: bool = True, ready: bool = True, path: str = "/metrics") -> Starlette:
    return application(
        registry=registry,
        telemetry_path=path,
        healthy=lambda: healthy,
        ready=lambda: ready,
        page=lambda: "<!doctype html><title>é</title>",
    )


@pytest.fixture
def app(registry: CollectorRegistry) -> Starlette:
    return make(registry)


class TestMetrics:
    async def test_text(self, app: Starlette) -> None:
        """Without an Accept header the answer is the classic text format, and says what it depends on."""
        answer = await ask(app, "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["vary"] == "Accept, Accept-Encoding"
        assert b"\naes_two_total 2.0\n" in answer.body
        assert "content-encoding" not in answer.headers

    async def test_open_metrics(self, app: Starlette) -> None:
        """What Prometheus sends as its Accept header gets OpenMetrics."""
        accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3"
        answer = await ask(app, "/metrics", accept=accept)
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert answer.body.endswith(b"# EOF\n")

    @pytest.mark.parametrize("version", ["x", "1.", "1.0.0é", "9" * 5000])
    async def test_nonsense_in_accept(self, app: Starlette, version: str) -> None:
        """A version that is none does not keep the client from an answer."""
        answer = await ask(app, "/metrics", accept=f"application/openmetrics-text;version={version}")
        assert answer.status == 200
        assert b"\naes_one 1.0\n" in answer.body

    @pytest.mark.parametrize("accepted", ["gzip", "GZIP", "br, gzip;q=0.1", "gzip ; q=1.0", "deflate,gzip"])
    async def test_gzip(self, app: Starlette, accepted: str) -> None:
        """A client that takes gzip gets it, with the length of what is sent."""
        answer = await ask(app, "/metrics", accept_encoding=accepted)
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-length"] == str(len(answer.body))
        assert gzip.decompress(answer.body) == (await ask(app, "/metrics")).body

    @pytest.mark.parametrize("refused", ["", "identity", "gzip;q=0", "gzip; q=0.000", "br, gzip ;q=0, *", "xgzip"])
    async def test_no_gzip(self, app: Starlette, refused: str) -> None:
        """A client that does not ask for gzip, or refuses it by a quality of 0, gets plain text."""
        assert "content-encoding" not in (await ask(app, "/metrics", accept_encoding=refused)).headers

    @pytest.mark.parametrize(
        ("query", "one", "two"),
        [
            ("name[]=aes_one", True, False),
            ("name[]=aes_one&name[]=aes_two_total", True, True),
            ("name%5B%5D=aes_two_total", False, True),
            ("name[]=nothing", False, False),
            ("name[]=", True, True),
            ("other=aes_one", True, True),
        ],
    )
    async def test_names(self, app: Starlette, query: str, one: bool, two: bool) -> None:
        """The name[] parameter restricts the answer to the metrics named."""
        body = (await ask(app, "/metrics", query=query)).body
        assert (b"\naes_one 1.0\n" in body, b"\naes_two_total 2.0\n" in body) == (one, two)

    async def test_other_path(self, registry: CollectorRegistry) -> None:
        """The telemetry path is where it was put, and only there."""
        app = make(registry, path="/probe/aes")
        assert (await ask(app, "/probe/aes")).status == 200
        assert (await ask(app, "/metrics")).status == 404


class TestPages:
    async def test_landing_page(self, app: Starlette) -> None:
        """The landing page is HTML that may load nothing, run nothing and be framed by nobody."""
        answer = await ask(app, "/")
        assert (answer.status, answer.body.decode()) == (200, "<!doctype html><title>é</title>")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"

    @pytest.mark.parametrize(
        ("path", "good", "status", "body"),
        [
            ("/-/healthy", True, 200, b"aes-exporter is healthy.\n"),
            ("/-/healthy", False, 503, b"aes-exporter is not healthy: no run ended within three intervals.\n"),
            ("/-/ready", True, 200, b"aes-exporter is ready.\n"),
            ("/-/ready", False, 503, b"aes-exporter is not ready: the first run has not ended.\n"),
        ],
    )
    async def test_health(self, registry: CollectorRegistry, path: str, good: bool, status: int, body: bytes) -> None:
        """The health paths answer 200 or 503 and one line of plain text, each from its own function."""
        app = make(registry, healthy=good or path != "/-/healthy", ready=good or path != "/-/ready")
        answer = await ask(app, path)
        assert (answer.status, answer.body) == (status, body)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"

    @pytest.mark.parametrize(
        "path",
        ["/metrics/", "/metrics\n", "/METRICS", "//metrics", "/-/", "/-/healthy/", "/favicon.ico", "", "*", "host:443"],
    )
    async def test_anything_else_is_not_found(self, app: Starlette, path: str) -> None:
        """A path that is not exactly one of ours is a plain 404, never a redirect."""
        answer = await ask(app, path)
        assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "NONSENSE"])
    @pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/-/ready"])
    async def test_other_methods(self, app: Starlette, path: str, method: str) -> None:
        """Only GET and HEAD are allowed, and a 405 says so."""
        answer = await ask(app, path, method=method)
        assert answer.status == 405
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
        assert (await ask(app, path, method="HEAD")).status == 200


class TestErrors:
    async def test_rendering_error(self, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
        """A bug while rendering is a 500 with one plain line, and is logged once with its traceback."""
        broken = Broken()
        registry.register(broken)
        app = make(registry)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):  # Starlette raises it again for the server to log
                await ask(app, "/metrics")
        assert (await ask(app, "/-/healthy")).status == 200
        broken.error = KeyError("another")
        with pytest.raises(KeyError):
            await ask(app, "/metrics")
        assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
            ZeroDivisionError,
            KeyError,
        ]

    async def test_server_survives_it(self, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
        """Through the server a bug is a 500 as well; the next request is answered, and uvicorn adds nothing."""
        broken = Broken()
        registry.register(broken)
        async with serving(make(registry)) as port:
            for _ in range(2):
                status, body = await get(port, "/metrics")
                assert (status, body) == (500, b"internal error, see the log of aes-exporter\n")
            assert (await get(port, "/-/healthy"))[0] == 200
        assert len(caplog.records) == 1


@asynccontextmanager
async def serving(app: Starlette, *sockets: socket.socket) -> AsyncIterator[int]:
    """Serve on the given sockets or on a free port of loopback, and yield the port of the first."""
    bound = list(sockets) or listen([Address(host="127.0.0.1", port=0)])
    port = bound[0].getsockname()[1]
    server = Server(app, max_connections=8)
    task = asyncio.create_task(server.serve(bound))
    await asyncio.wait_for(server.started.wait(), 5)
    try:
        yield port
    finally:
        server.stop()
        await asyncio.wait_for(task, 5)


async def exchange(port: int, request: bytes, host: str = "127.0.0.1") -> bytes:
    """Send bytes and return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


async def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    answer = await exchange(port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), host)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


class TestServer:
    async def test_head(self, app: Starlette) -> None:
        """HEAD has the headers of GET and no body; no header tells the software."""
        async with serving(app) as port:
            answer = await exchange(port, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        length = len((await ask(app, "/metrics")).body)
        assert f"content-length: {length}".encode() in head.lower().splitlines()
        assert b"\r\nserver:" not in head.lower()
        assert body == b""

    async def test_keeps_connections_alive(self, app: Starlette) -> None:
        """A second request on the same connection is answered as well."""
        request = b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n"
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(request)
                assert await reader.readuntil(b"ready.\n")
            writer.close()

    async def test_logs_nothing(self, app: Starlette, caplog: pytest.LogCaptureFixture) -> None:
        """Neither start, stop nor requests, good or bad, leave a line in the log, not even at debug level."""
        caplog.set_level(logging.DEBUG)
        async with serving(app) as port:
            await get(port, "/metrics")
            await get(port, "/nothing")
            await exchange(port, b"nonsense\r\n\r\n")
            await exchange(
                port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
        assert [record for record in caplog.records if record.name != "asyncio"] == []

    async def test_stop_before_serve(self, app: Starlette) -> None:
        """A server told to stop before it serves ends at once and closes its sockets."""
        server = Server(app, max_connections=8)
        [sock] = listen([Address(host="127.0.0.1", port=0)])
        server.stop()
        await asyncio.wait_for(server.serve([sock]), 1)
        assert sock.fileno() == -1

    async def test_idle_clients_do_not_delay_the_end(self, app: Starlette) -> None:
        """With nothing but idle kept-alive connections the server ends at once."""
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"ready.\n")
            began = time.monotonic()
        assert time.monotonic() - began < 1
        assert await reader.read() == b""
        writer.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class TestListen:
    async def test_small_packets_do_not_wait(self, app: Starlette) -> None:
        """Connections send at once: what is held back for the client's acknowledgement comes 40 ms later."""
        [sock] = listen([Address(host="127.0.0.1", port=0)])
        with socket.create_connection(sock.getsockname()), sock, sock.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    async def test_every_address(self, app: Starlette) -> None:
        """Host "" is reachable by IPv4 and by IPv6 alike, over one socket."""
        [sock] = listen([Address(host="", port=0)])
        if not socket.has_dualstack_ipv6():
            pytest.skip("no IPv6 here")
        async with serving(app, sock) as port:
            assert [(await get(port, "/-/ready", host))[0] for host in ("127.0.0.1", "::1")] == [200, 200]

    def test_without_ipv6(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """Where there is no IPv6, host "" listens on IPv4 and says so once."""
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
        [sock] = listen([Address(host="", port=0)])
        with sock:
            assert sock.getsockname()[0] == "0.0.0.0"
        [warning] = caplog.records
        assert warning.getMessage() == "no IPv6 on this host, listening on IPv4 only"

    def test_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name is bound at every address it resolves to, each once."""
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        sockets = listen([Address(host="twice", port=0)])
        assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "127.0.0.2"]
        for sock in sockets:
            sock.close()

    def test_name_with_an_ipv6_address_that_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A name that also resolves to IPv6 where the host has none is bound at its IPv4 address, and that is said."""
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        [sock] = listen([Address(host="localhost", port=0)])
        with sock:
            assert sock.getsockname()[0] == "127.0.0.1"
        assert len(caplog.records) == 1

    def test_name_with_no_address_of_this_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name of which no address can be had is an error, not a server that listens nowhere."""
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, 0, 0, 0))
            for address in ("2001:db8::1", "2001:db8::2")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        with pytest.raises(ListenError, match=r"^cannot listen on elsewhere:0: "):
            listen([Address(host="elsewhere", port=0)])

    def test_port_in_use(self) -> None:
        """A port in use is one line naming the address, and the sockets opened before it are closed again."""
        first = free_port()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ListenError) as caught:
                listen([Address(host="127.0.0.1", port=first), Address(host="127.0.0.1", port=port)])
        assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use"
        socket.create_server(("127.0.0.1", first)).close()

    @pytest.mark.parametrize(
        ("host", "message"),
        [
            ("192.0.2.1", "cannot listen on 192.0.2.1:0: Cannot assign requested address"),
            ("2001:db8::1", "cannot listen on [2001:db8::1]:0: "),
            ("host.invalid", "cannot listen on host.invalid:0: "),
            ("a" * 70, f"cannot listen on {'a' * 70}:0: "),
        ],
    )
    def test_impossible_addresses(self, host: str, message: str) -> None:
        """An address of another host, or a name that does not resolve, is refused in one line that names it."""
        with pytest.raises(ListenError) as caught:
            listen([Address(host=host, port=0)])
        assert str(caught.value).startswith(message)
        assert len(str(caught.value)) > len(message) or message[-1] != " "
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("host", "text"), [("", ":10739"), ("localhost", "localhost:10739"), ("::1", "[::1]:10739")]
    )
    def test_address_as_text(self, host: str, text: str) -> None:
        """An address reads as the user wrote it."""
        assert str(Address(host=host, port=10739)) == text
