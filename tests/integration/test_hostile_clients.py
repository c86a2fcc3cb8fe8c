"""The server against clients that mean harm: real sockets on loopback, the server in a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric

from aes_exporter.notation import Address
from aes_exporter.server import Server, application, listen
from aes_exporter.server.turnstile import Turnstile

READY = b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
OPEN_METRICS = SCRAPE[:-2] + b"Accept: application/openmetrics-text; version=1.0.%d\r\n\r\n"
HALF = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
BIG = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"  # more than the kernel buffers of a client that reads nothing
BIG_BYTES = 400_000


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server, reached by its port."""

    port: int
    stop: Callable[[], float]
    call: Callable[..., object]  # has a function called in the server's event loop

    def connect(self, data: bytes = b"") -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        sock.settimeout(5)
        sock.connect(("127.0.0.1", self.port))
        sock.sendall(data)
        return sock

    def exchange(self, data: bytes) -> bytes:
        with self.connect() as sock:
            with suppress(ConnectionError):  # closed early: what was answered before may still be there
                sock.sendall(data)
            return read_all(sock)

    def scrape(self) -> float:
        """Scrape, and return how long that took, in seconds."""
        began = time.monotonic()
        assert self.exchange(SCRAPE).startswith(b"HTTP/1.1 200 OK\r\n")
        return time.monotonic() - began


class Sluggish:
    """A collector that takes its time, and a page that takes as much."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.scrapes = 0

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        self.scrapes += 1
        time.sleep(self.seconds)
        return []

    def page(self) -> str:
        time.sleep(self.seconds)
        return "x" * BIG_BYTES


@pytest.fixture
def sluggish() -> Sluggish:
    return Sluggish()


@pytest.fixture
def app_registry(sluggish: Sluggish) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(sluggish)
    gauge = Gauge("aes_throughput_bytes_per_second", "Speed.", ["cell"], registry=registry)
    for cell in range(400):
        gauge.labels(f"a cell with a name of usual length {cell}").set(cell)
    return registry


@pytest.fixture
def serve(app_registry: CollectorRegistry, sluggish: Sluggish) -> Iterator[Callable[..., Served]]:
    """Start servers with given limits; each is stopped in the end."""
    app = application(
        registry=app_registry,
        telemetry_path="/metrics",
        healthy=lambda: True,
        ready=lambda: True,
        page=sluggish.page,
    )
    with ExitStack() as stack:

        def start(max_connections: int = 128, request_seconds: float = 10.0, response_seconds: float = 10.0) -> Served:
            server = Server(
                app,
                max_connections=max_connections,
                request_seconds=request_seconds,
                response_seconds=response_seconds,
            )
            return stack.enter_context(threaded(server))

        yield start


@contextmanager
def threaded(server: Server) -> Iterator[Served]:
    sockets = listen([Address(host="127.0.0.1", port=0)])
    sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    port = sockets[0].getsockname()[1]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(sockets),))
    thread.start()
    asyncio.run_coroutine_threadsafe(server.started.wait(), loop).result(5)

    def stop() -> float:
        began = time.monotonic()
        if thread.is_alive():
            loop.call_soon_threadsafe(server.stop)
            thread.join(10)
        return time.monotonic() - began

    try:
        yield Served(port=port, stop=stop, call=loop.call_soon_threadsafe)
    finally:
        stop()
        assert not thread.is_alive()
        assert asyncio.all_tasks(loop) == set()
        loop.close()


@pytest.fixture(autouse=True)
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients do, nothing is logged."""
    caplog.set_level(logging.DEBUG)
    yield
    assert [record for record in caplog.get_records("call") if record.levelno > logging.DEBUG] == []


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for both ends of some 800 connections in this one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the limit of open files is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_all(sock: socket.socket) -> bytes:
    """Return what comes until the other side closes or resets."""
    data = b""
    with suppress(ConnectionError):
        while chunk := sock.recv(65536):
            data += chunk
    return data


def read_ready(sock: socket.socket) -> None:
    """Read one answer to READY, which comes in two pieces."""
    data = b""
    while not data.endswith(b"is ready.\n"):
        chunk = sock.recv(65536)
        assert chunk, "closed by the server"
        data += chunk


def read_until_quiet(socks: list[socket.socket]) -> None:
    """Read from all of them until nothing more comes."""
    while readable := select.select(socks, [], [], 0.2)[0]:
        for sock in readable:
            assert sock.recv(65536), "closed by the server"


def send_all(sock: socket.socket, data: bytes, *, pause: float = 0.0) -> int:
    """Send `data` over and over, up to 1 GB, and return how many bytes went off until the other side closed."""
    sent = 0
    with suppress(ConnectionError):
        while sent < 1_000_000_000:
            sent += sock.send(data)
            time.sleep(pause)
    return sent


def is_open(sock: socket.socket) -> bool:
    """Whether the other side has not closed; sees through data that was not read yet."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] == 1  # TCP_ESTABLISHED


def wait_until(condition: Callable[[], bool]) -> float:
    """Wait until something holds, and return how long that took, in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 5
        time.sleep(0.01)
    return time.monotonic() - began


def seconds_open(sock: socket.socket) -> float:
    """Wait until the other side closes, and return how long that took."""
    return wait_until(lambda: not is_open(sock))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def connections_in_memory() -> int:
    gc.collect()
    return sum(type(thing).__name__ == "_Connection" for thing in gc.get_objects())


class TestSiege:
    @pytest.mark.parametrize("max_connections", [128, 1000], ids=["capped", "all held"])
    def test_scrapes_go_on(self, serve: Callable[..., Served], many_descriptors: None, max_connections: int) -> None:
        """500 half requests and 200 clients that read nothing neither delay a scrape nor the end of the server."""
        before = descriptors()
        served = serve(max_connections)
        with ExitStack() as held:
            clients = [held.enter_context(served.connect(HALF)) for _ in range(500)]
            clients += [held.enter_context(served.connect(BIG)) for _ in range(200)]
            assert max(served.scrape() for _ in range(20)) < 1
            assert sum(is_open(client) for client in clients) == min(700, max_connections - 1)  # a scrape took one
            assert served.stop() < 2
        assert descriptors() <= before + 3  # the event loop of the server keeps three until it is closed

    def test_descriptors_come_back(self, serve: Callable[..., Served], many_descriptors: None) -> None:
        """Once the deadlines of half requests and of unread responses have passed, their descriptors are free."""
        served = serve(1000, 0.5, 0.5)
        before = descriptors()
        with ExitStack() as held:
            for _ in range(100):
                held.enter_context(served.connect(HALF))
                held.enter_context(served.connect(BIG))
            wait_until(lambda: descriptors() == before + 200)  # our ends
        assert served.scrape() < 1

    def test_scrapes_get_through_a_flood(self, serve: Callable[..., Served]) -> None:
        """While another client opens connections as fast as it can, not one scrape is pushed out."""
        served = serve(16)
        flooding = True

        def flood() -> None:
            with ExitStack() as held:
                while flooding:
                    held.enter_context(served.connect(HALF))
                    time.sleep(0.001)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(20):
                served.scrape()
        finally:
            flooding = False
            thread.join()


class TestBursts:
    def test_does_not_push_out_a_request_that_is_there(self, serve: Callable[..., Served]) -> None:
        """A client whose request came before a burst of many connections at once is answered."""
        served = serve(16)
        with ExitStack() as held:
            began = time.monotonic()
            served.call(time.sleep, 0.3)  # all of them arrive while the event loop is busy
            scrape = held.enter_context(served.connect(SCRAPE))
            for _ in range(100):
                held.enter_context(served.connect(HALF))
            assert read_all(scrape).startswith(b"HTTP/1.1 200 OK\r\n")
            assert time.monotonic() - began < 0.9  # nobody had to knock twice, which takes a second
            served.scrape()  # by now all were accepted; asyncio forgets to close those that it accepts while it ends

    def test_scrapes_hold_up_nothing_else(self, serve: Callable[..., Served], sluggish: Sluggish) -> None:
        """Many different scrapes at once are rendered one after the other, with everything else in between."""
        served = serve()
        sluggish.seconds = 0.05
        with ExitStack() as held:
            began = time.monotonic()
            served.call(time.sleep, 0.2)
            scrapes = [held.enter_context(served.connect(OPEN_METRICS % version)) for version in range(30)]
            read_ready(held.enter_context(served.connect(READY)))
            assert time.monotonic() - began < 0.9  # and not after all of them, which takes 1.5 s
            assert all(read_all(scrape).startswith(b"HTTP/1.1 200 OK\r\n") for scrape in scrapes)

    def test_a_crowd_is_overtaken(self, serve: Callable[..., Served], sluggish: Sluggish) -> None:
        """A scrape does not wait for all the pages that others have asked for a moment before."""
        served = serve()
        sluggish.seconds = 0.02
        with ExitStack() as held:
            served.call(time.sleep, 0.2)
            pages = [held.enter_context(served.connect(BIG)) for _ in range(100)]
            time.sleep(0.2)
            assert served.scrape() < 0.5  # and not after two seconds
            assert all(sock.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n") for sock in pages)

    def test_who_was_just_answered_has_come_before(
        self, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A client that asks again at once does not count as one that has just come, but does after a rest."""
        seen: list[bool] = []
        wait = Turnstile.wait

        async def recorded(turnstile: Turnstile, *, rested: bool) -> None:
            seen.append(rested)
            await wait(turnstile, rested=rested)

        monkeypatch.setattr(Turnstile, "wait", recorded)
        with serve().connect(READY) as sock:
            read_ready(sock)
            sock.sendall(READY)
            read_ready(sock)
            time.sleep(1.1)
            sock.sendall(READY)
            read_ready(sock)
        assert seen == [True, False, True]

    @pytest.mark.parametrize("scrape", [SCRAPE, OPEN_METRICS % 0], ids=["text", "OpenMetrics"])
    def test_scrapes_are_shared(self, serve: Callable[..., Served], sluggish: Sluggish, scrape: bytes) -> None:
        """A crowd that asks for the same at once is answered with one rendering, and who comes later with another."""
        served = serve()
        sluggish.seconds = 0.02
        with ExitStack() as held:
            served.call(time.sleep, 0.2)
            scrapes = [held.enter_context(served.connect(scrape)) for _ in range(100)]
            assert all(read_all(each).startswith(b"HTTP/1.1 200 OK\r\n") for each in scrapes)
        assert sluggish.scrapes < 20
        before = sluggish.scrapes
        served.scrape()
        assert sluggish.scrapes == before + 1


class TestDeadlines:
    @pytest.mark.parametrize("start", [b"", b"GET /met", HALF], ids=["silent", "half a line", "half a request"])
    def test_incomplete_request(self, serve: Callable[..., Served], start: bytes) -> None:
        """A connection that has not delivered a request in time is closed."""
        with serve(request_seconds=0.3).connect(start) as sock:
            assert 0.2 < seconds_open(sock) < 1

    def test_dripping_does_not_extend_it(self, serve: Callable[..., Served]) -> None:
        """A header sent a byte at a time has no longer than one that does not come at all."""
        with serve(request_seconds=0.3).connect(HALF) as sock:
            began = time.monotonic()
            send_all(sock, b"x", pause=0.02)
            assert time.monotonic() - began < 1

    @pytest.mark.parametrize("together", [True, False], ids=["in one piece", "later"])
    def test_half_a_second_request(self, serve: Callable[..., Served], together: bool) -> None:
        """The deadline of a later request runs from its first byte, also when that came along with the one before."""
        with serve(request_seconds=0.3).connect(READY + HALF * together) as sock:
            read_ready(sock)
            if not together:
                time.sleep(0.5)  # idle, which is allowed
                sock.sendall(HALF)
            assert 0.2 < seconds_open(sock) < 1

    def test_idle_connections_may_stay(self, serve: Callable[..., Served]) -> None:
        """An idle kept-alive connection outlives both deadlines and is still served."""
        with serve(request_seconds=0.2, response_seconds=0.2).connect(READY) as sock:
            read_ready(sock)
            time.sleep(0.6)
            sock.sendall(READY)
            read_ready(sock)

    @pytest.mark.parametrize("request_", [BIG, BIG.replace(b"1.1", b"1.0"), BIG * 3], ids=["1.1", "1.0", "pipelined"])
    def test_unread_response(self, serve: Callable[..., Served], request_: bytes) -> None:
        """A client that does not take its response in time is cut off, and so never gets all of it."""
        with serve(response_seconds=0.3).connect(request_) as sock:
            time.sleep(0.6)
            assert len(read_all(sock)) < BIG_BYTES

    def test_slow_reader_in_time(self, serve: Callable[..., Served]) -> None:
        """Each of several responses has its own deadline: a client may take longer than that for all of them."""
        responses = 4
        with serve(response_seconds=0.8).connect(BIG * responses) as sock:
            began = time.monotonic()
            received = 0
            while received < responses * BIG_BYTES:
                time.sleep(max(0.0, began + 1.2 * received / (responses * BIG_BYTES) - time.monotonic()))
                received += len(sock.recv(16 * 1024))

    def test_late_reader_in_time(self, serve: Callable[..., Served]) -> None:
        """Once a client has read everything, its connection has no deadline, whatever was left in which buffer."""
        served = serve(response_seconds=1.2)
        with ExitStack() as held:
            requests = [BIG] + [SCRAPE.replace(b"close", b"") * n for n in range(1, 10)]
            clients = [held.enter_context(served.connect(request_)) for request_ in requests]
            time.sleep(0.2)
            read_until_quiet(clients)
            time.sleep(1.2)
            for client in clients:
                client.sendall(READY)
                read_ready(client)


class TestCap:
    def test_oldest_without_a_request_goes_first(self, serve: Callable[..., Served]) -> None:
        """Over the cap the oldest incomplete or idle connection is closed, not one whose request is complete."""
        served = serve(4)
        with ExitStack() as held:
            unread = held.enter_context(served.connect(BIG))
            idle = held.enter_context(served.connect(READY))
            read_ready(idle)
            halves = [held.enter_context(served.connect(HALF)) for _ in range(4)]
            assert seconds_open(idle) < 1
            assert seconds_open(halves[0]) < 1
            assert [is_open(sock) for sock in (unread, *halves)] == [True, False, True, True, True]

    def test_full_of_unread_responses(self, serve: Callable[..., Served]) -> None:
        """If every connection holds an unread response, the oldest makes room, so that a scrape still gets through."""
        served = serve(4)
        with ExitStack() as held:
            unread = [held.enter_context(served.connect(BIG)) for _ in range(4)]
            time.sleep(0.1)
            assert served.scrape() < 1
            assert [is_open(sock) for sock in unread] == [False, True, True, True]


CLIENT_HELLO = (
    b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(range(32)) + b"\x20" + bytes(range(32)) + b"\x00\x08"
    b"\x13\x02\x13\x03\x13\x01\x00\xff\x01\x00\x00\x50" + bytes(80)
)
BAD_REQUESTS = {
    "headers of 64 KiB": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 65536 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 12_000 + b"\r\n",
    "a path of a million characters": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET /metrics HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "http 2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": CLIENT_HELLO,
    "empty lines": b"\r\n" * 1000,
    "no method": b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    "space in the path": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in the path": b"GET /\xff\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in a header": b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "huge length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "wrong method": b"DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "bad chunk": b"POST /-/ready HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "unknown coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    "connect": b"CONNECT host:443 HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n",
    "garbage after a request": READY.replace(b"GET", b"PUT") + b"\x00\x01\x02\r\n\r\n",
}


class TestBadRequests:
    @pytest.mark.parametrize("request_", BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
    def test_refused(self, serve: Callable[..., Served], request_: bytes) -> None:
        """What is no good request is answered with a 4xx or not at all, closed at once, and scrapes go on."""
        served = serve()
        began = time.monotonic()
        answer = served.exchange(request_)
        assert answer[:10] in (b"", b"HTTP/1.1 4")
        assert time.monotonic() - began < 2
        assert served.scrape() < 1

    def test_random_bytes(self, serve: Callable[..., Served]) -> None:
        """Random bytes, and good requests with random damage, are never answered with a 5xx."""
        served = serve(request_seconds=0.2)
        source = random.Random(20_240_101)
        for _ in range(100):
            damaged = bytearray(READY * 2 + SCRAPE)
            for _ in range(source.randint(1, 4)):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
            for data in (source.randbytes(source.randint(1, 2000)), bytes(damaged)):
                with served.connect(data) as sock:
                    sock.shutdown(socket.SHUT_WR)
                    assert b"HTTP/1.1 5" not in read_all(sock)
        assert served.scrape() < 1

    def test_reset_instead_of_reading(self, serve: Callable[..., Served]) -> None:
        """Clients that reset the connection, before, during or after a request, leave nothing behind."""
        served = serve()
        before = descriptors()
        for request_, answered in ((b"", False), (HALF, False), (READY, False), (READY, True), (BIG * 3, False)) * 10:
            with served.connect(request_) as sock:
                if answered:
                    read_ready(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert served.scrape() < 1
        wait_until(lambda: descriptors() <= before and connections_in_memory() == 0)

    @pytest.mark.parametrize("method", [b"POST", b"GET"])
    def test_huge_body(self, serve: Callable[..., Served], method: bytes) -> None:
        """A body of 1 GB is not read: the answer comes at once, and the connection is closed."""
        head = method + b" /-/ready HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
        with serve().connect(head) as sock:
            assert send_all(sock, bytes(65536)) < 20_000_000
            assert sock.recv(65536)[:12] == (b"HTTP/1.1 405" if method == b"POST" else b"HTTP/1.1 200")


class TestOddRequests:
    @pytest.mark.parametrize("host", [b"", b"Host: x\r\n"])
    def test_http_1_0(self, serve: Callable[..., Served], host: bytes) -> None:
        """HTTP/1.0 is served, with a host or without one, and its connection closed."""
        answer = serve().exchange(b"GET /-/ready HTTP/1.0\r\n" + host + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"is ready.\n")

    @pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
    def test_upgrade(self, serve: Callable[..., Served], upgrade: bytes) -> None:
        """An upgrade to another protocol is not taken up; the request itself is answered."""
        headers = b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\nSec-WebSocket-Key: eA==\r\n\r\n"
        with serve().connect(READY[:-2] + headers) as sock:
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")

    def test_pipelining(self, serve: Callable[..., Served]) -> None:
        """Requests sent without waiting are answered one after the other, in their order."""
        answer = serve().exchange(READY * 300 + SCRAPE.replace(b"metrics", b"nothing"))
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 300
        assert answer.endswith(b"Not Found")

    @pytest.mark.parametrize(("request_", "answers"), [(BIG, 1), (BIG * 3, 3), (READY * 20, 20), (READY + HALF, 1)])
    def test_half_closed(self, serve: Callable[..., Served], request_: bytes, answers: int) -> None:
        """A client that has shut down its sending side still gets all of its answers, and is closed after them."""
        with serve().connect(request_) as sock:
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock).count(b"HTTP/1.1 200 OK\r\n") == answers
