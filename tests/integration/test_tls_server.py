"""The server with TLS: handshakes that stall, clients without a right certificate, and rotation, over real sockets."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import trustme
from prometheus_client import CollectorRegistry, Gauge

from aes_exporter.server import Server, application
from aes_exporter.web.current import CurrentWebConfig
from aes_exporter.web.tls import Tls
from tests.certificates import MUTUAL, PAIR, write, write_authority, write_pair
from tests.integration.test_hostile_clients import (
    BIG,
    BIG_BYTES,
    HALF,
    READY,
    SCRAPE,
    Served,
    connections_in_memory,
    descriptors,
    is_open,
    read_all,
    read_ready,
    seconds_open,
    threaded,
)

AUTHORITY = trustme.CA()
CLIENTS = trustme.CA()


@pytest.fixture(autouse=True)
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients do, no error is logged."""
    caplog.set_level(logging.DEBUG)
    yield
    assert [record for record in caplog.get_records("call") if record.levelno > logging.INFO] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pair(tmp_path, AUTHORITY)
    write_authority(tmp_path / "clients.crt", CLIENTS)
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Served]]:
    """Start servers with a web config in `folder` and given limits; each is stopped in the end."""
    registry = CollectorRegistry()
    Gauge("aes_one", "One.", registry=registry).set(1)
    app = application(
        registry=registry,
        telemetry_path="/metrics",
        healthy=lambda: True,
        ready=lambda: True,
        page=lambda: "x" * BIG_BYTES,
    )
    with ExitStack() as stack:

        def start(text: str = PAIR, *, max_connections: int = 128, request: float = 10, response: float = 10) -> Served:
            server = Server(
                app,
                max_connections=max_connections,
                request_seconds=request,
                response_seconds=response,
                tls=CurrentWebConfig(write(folder, text)).tls,
            )
            return stack.enter_context(threaded(server))

        yield start


def client_context(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return what a client trusts, and the certificate that it shows."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        certificate.configure_cert(context)
    return context


@contextmanager
def secured(served: Served, context: ssl.SSLContext | None = None, data: bytes = b"") -> Iterator[ssl.SSLSocket]:
    """Open a TLS connection and send `data` over it."""
    with (context or client_context()).wrap_socket(served.connect(), server_hostname="localhost") as sock:
        sock.sendall(data)
        yield sock


def scrape(served: Served, context: ssl.SSLContext | None = None) -> float:
    """Scrape over a connection of its own, and return how long that took, in seconds."""
    began = time.monotonic()
    with secured(served, context, SCRAPE) as sock:
        assert read_all(sock).startswith(b"HTTP/1.1 200 OK\r\n")
    return time.monotonic() - began


def hello() -> bytes:
    """Return the first message of a good handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


STALLED: Mapping[str, bytes] = {"silent": b"", "half a hello": hello()[:100], "no answer to the server's": hello()}


class TestHandshakes:
    @pytest.mark.parametrize("start", STALLED.values(), ids=STALLED.keys())
    def test_deadline(self, serve: Callable[..., Served], start: bytes) -> None:
        """A handshake that is not complete in time ends the connection, wherever it stalled."""
        served = serve(request=0.3)
        began = time.monotonic()
        with served.connect(start) as sock:
            read_all(sock)
        assert 0.2 < time.monotonic() - began < 3

    @pytest.mark.parametrize("request_", [b"", HALF])
    def test_one_deadline_for_handshake_and_request(self, serve: Callable[..., Served], request_: bytes) -> None:
        """A complete handshake does not extend the time for the first request."""
        served = serve(request=1)
        began = time.monotonic()
        raw = served.connect()
        time.sleep(0.6)
        with client_context().wrap_socket(raw, server_hostname="localhost") as sock:
            sock.sendall(request_)
            read_all(sock)
        assert 0.8 < time.monotonic() - began < 1.55

    def test_the_cap_covers_them(self, serve: Callable[..., Served]) -> None:
        """Of more stalled handshakes than connections allowed the oldest are closed, and scrapes get through."""
        served = serve(max_connections=16)
        with ExitStack() as held:
            stalled = [held.enter_context(served.connect(start)) for start in [*STALLED.values()] * 20]
            for _ in range(5):
                scrape(served)
            assert sum(map(is_open, stalled)) <= 15
            assert not any(map(is_open, stalled[:40]))
            assert is_open(stalled[-1])

    def test_nothing_stays_behind(self, serve: Callable[..., Served]) -> None:
        """Handshakes given up by either side leave neither descriptor nor connection."""
        served = serve(request=0.3)
        scrape(served)
        before = descriptors()
        for start in [*STALLED.values(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" * 1000]:
            with served.connect(start) as given_up:
                given_up.shutdown(socket.SHUT_WR)
            served.connect(start).close()
        deadline = time.monotonic() + 5
        while descriptors() > before or connections_in_memory():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def test_plain_http_is_not_answered(self, serve: Callable[..., Served]) -> None:
        """A request without TLS gets no HTTP answer, and its connection is closed at once."""
        began = time.monotonic()
        assert b"HTTP" not in serve().exchange(SCRAPE)
        assert time.monotonic() - began < 2

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_versions(self, serve: Callable[..., Served], version: ssl.TLSVersion) -> None:
        """TLS 1.2 and 1.3 are both served, and min_version keeps out the older one."""
        context = client_context()
        context.minimum_version = context.maximum_version = version
        scrape(serve(), context)
        if version is ssl.TLSVersion.TLSv1_2:
            with pytest.raises(ssl.SSLError):
                scrape(serve(PAIR + "  min_version: TLS13\n"), context)


class TestConnections:
    def test_kept_alive(self, serve: Callable[..., Served]) -> None:
        """Several requests go over one connection, and idle it outlives both deadlines."""
        with secured(serve(request=0.3, response=0.3)) as sock:
            for _ in range(3):
                sock.sendall(READY)
                read_ready(sock)
                time.sleep(0.5)

    def test_unread_response(self, serve: Callable[..., Served]) -> None:
        """A client that does not take its response in time is cut off, though all of it was encrypted at once."""
        with secured(serve(response=0.3), data=BIG) as sock:
            time.sleep(0.8)
            with suppress(ssl.SSLError):
                assert len(read_all(sock)) < BIG_BYTES

    def test_slow_reader_in_time(self, serve: Callable[..., Served]) -> None:
        """Each of several responses has its own deadline; when they were all read there is none left."""
        responses = 4
        with secured(serve(response=0.8), data=BIG * responses) as sock:
            began, received = time.monotonic(), 0
            while received < responses * BIG_BYTES:
                time.sleep(max(0.0, began + 1.2 * received / (responses * BIG_BYTES) - time.monotonic()))
                received += len(data := sock.recv(16 * 1024))
                assert data
            time.sleep(1)
            sock.sendall(READY)
            read_ready(sock)

    def test_a_client_that_does_not_say_goodbye(self, serve: Callable[..., Served]) -> None:
        """A client that leaves the connection open after the last response is not waited for longer than for that."""
        served = serve(response=0.5)
        with secured(served, data=SCRAPE) as sock:
            assert read_all(sock)
            raw = socket.socket(fileno=sock.detach())
        with raw:
            assert seconds_open(raw) < 2

    def test_the_end(self, serve: Callable[..., Served]) -> None:
        """Neither idle clients, nor stalled ones, nor unread responses hold up the end of the server."""
        served = serve()
        with ExitStack() as held:
            held.enter_context(secured(served, data=READY))
            held.enter_context(secured(served, data=BIG))
            for start in STALLED.values():
                held.enter_context(served.connect(start))
            time.sleep(0.2)
            assert served.stop() < 3


def certificate(*names: str, common_name: str | None = None) -> trustme.LeafCert:
    return CLIENTS.issue_cert(*names, common_name=common_name)


STRANGERS = {
    "none": None,
    "another authority": trustme.CA().issue_cert("client.test"),
    "the server's authority": AUTHORITY.issue_cert("client.test"),
}


def refused(served: Served, context: ssl.SSLContext) -> bool:
    """Whether a scrape gets no answer. In TLS 1.3 a client learns that only after its own handshake."""
    try:
        with secured(served, context, SCRAPE) as sock:
            answer = read_all(sock)
    except (ssl.SSLError, ConnectionError):
        return True
    return not answer


class TestClientCertificates:
    @pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_required(
        self, serve: Callable[..., Served], stranger: trustme.LeafCert | None, version: ssl.TLSVersion
    ) -> None:
        """With RequireAndVerifyClientCert only certificates of the authorities named are let in."""
        served = serve(MUTUAL)
        strange, known = client_context(stranger), client_context(certificate("client.test"))
        strange.maximum_version = known.maximum_version = version

        assert refused(served, strange)
        scrape(served, known)

    @pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
    def test_if_given(self, serve: Callable[..., Served], stranger: trustme.LeafCert | None) -> None:
        """With VerifyClientCertIfGiven a certificate may be left out, but not be wrong."""
        served = serve(MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))

        assert refused(served, client_context(stranger)) is (stranger is not None)
        scrape(served, client_context(certificate("client.test")))

    def test_an_intermediate_authority(self, serve: Callable[..., Served], folder: Path) -> None:
        """An authority that is none of the top is trusted by itself, without the one above it."""
        intermediate = CLIENTS.create_child_ca()
        write_authority(folder / "clients.crt", intermediate)
        served = serve(MUTUAL)

        scrape(served, client_context(intermediate.issue_cert("client.test")))
        assert refused(served, client_context(certificate("client.test")))

    @pytest.mark.parametrize("name", ["one.test", "10.1.2.3", "2001:db8::1", "one@mail.test"])
    def test_alternative_names(self, serve: Callable[..., Served], name: str) -> None:
        """With client_allowed_sans one of the certificate's names must be in the list; its common name is none."""
        served = serve(MUTUAL + f'  client_allowed_sans: ["{name}", "unused.test"]\n')

        scrape(served, client_context(certificate("other.test", name)))
        assert refused(served, client_context(certificate("other.test")))
        assert refused(served, client_context(certificate(f"x{name}" if ":" not in name else "2001:db8::2")))
        assert refused(served, client_context(certificate("other.test", common_name=name)))


class TestRotation:
    def test_new_certificate(self, serve: Callable[..., Served], folder: Path) -> None:
        """A new certificate counts for the next connection; one that is open goes on."""
        served = serve()
        with secured(served) as sock:
            first = sock.getpeercert(binary_form=True)
            write_pair(folder, AUTHORITY)
            sock.sendall(READY)
            read_ready(sock)
            with secured(served) as other:
                assert other.getpeercert(binary_form=True) != first

    def test_removed_authority(self, serve: Callable[..., Served], folder: Path) -> None:
        """Clients of a removed authority get in no longer: not anew, and not over a connection they have kept."""
        successors = trustme.CA()
        served = serve(MUTUAL)
        old, new = client_context(certificate("client.test")), client_context(successors.issue_cert("client.test"))
        with secured(served, old, READY) as kept:
            read_ready(kept)
            write_authority(folder / "clients.crt", CLIENTS, successors)
            scrape(served, old)
            scrape(served, new)
            write_authority(folder / "clients.crt", successors)
            kept.sendall(READY)
            assert read_all(kept) == b""
        assert refused(served, old)
        scrape(served, new)

    def test_a_response_under_way_is_finished(self, serve: Callable[..., Served], folder: Path) -> None:
        """Who was let in gets all of the response that was asked for before."""
        served = serve(MUTUAL)
        with secured(served, client_context(certificate("client.test")), BIG) as sock:
            data = sock.recv(1000)
            write_authority(folder / "clients.crt", trustme.CA())
            assert refused(served, client_context(certificate("client.test")))
            while len(data) < BIG_BYTES:
                data += sock.recv(65536)

    def test_resumed_sessions(self, serve: Callable[..., Served], folder: Path) -> None:
        """A session from before does not get round a new choice of authorities."""
        served = serve(MUTUAL + "  max_version: TLS12\n")
        context = client_context(certificate("client.test"))
        with secured(served, context, SCRAPE) as sock:
            read_all(sock)
            session = sock.session
        write_authority(folder / "clients.crt", trustme.CA())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(served.connect(), server_hostname="localhost", session=session)

    def test_tls_switched_on(self, serve: Callable[..., Served], folder: Path) -> None:
        """When TLS is asked for, connections from before are closed at their next request; new ones must have it."""
        served = serve("# nothing")
        with served.connect(READY) as plain:
            read_ready(plain)
            write(folder, PAIR)
            plain.sendall(READY)
            assert read_all(plain) == b""
        scrape(served)


def test_contexts_are_not_shared_by_mistake(folder: Path) -> None:
    """What opens the door tells configs apart that differ in it, and no others."""
    opens = [
        tls.clients
        for text in (PAIR, PAIR + "  min_version: TLS13\n", MUTUAL, MUTUAL + "  client_allowed_sans: [x]\n")
        if isinstance(tls := CurrentWebConfig(write(folder, text)).tls(), Tls)
    ]

    assert opens[0] == opens[1]
    assert len(set(opens)) == 3
