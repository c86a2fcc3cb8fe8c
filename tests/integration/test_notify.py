"""What the service manager hears, over a real socket, and from a real daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from aes_exporter.notify import ServiceManager
from tests.daemons import QUICK, daemon

SOON = {"WATCHDOG_USEC": "20000"}


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """The manager's socket, bound to a path or to a name in the abstract namespace."""
    name = f"\0{tmp_path.name}-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name)
        listening.settimeout(10)
        yield listening


def environment(manager: socket.socket, **others: str) -> dict[str, str]:
    """Return what systemd would set, with the abstract namespace's NUL written as @."""
    name = manager.getsockname()
    return {"NOTIFY_SOCKET": name if isinstance(name, str) else name.decode().replace("\0", "@", 1), **others}


def test_ready_and_stopping_are_said(manager: socket.socket) -> None:
    """Each word is one datagram, to a path and to an abstract name alike."""
    told = ServiceManager(environment(manager))
    told.ready()
    told.stopping()

    assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]


async def test_the_watchdog_hears_from_us_while_all_is_well(manager: socket.socket) -> None:
    """Pings come again and again while healthy, and none while not, though asking goes on."""
    manager.setblocking(False)
    answers = iter([True, False, True, True])
    task = asyncio.create_task(ServiceManager(environment(manager, **SOON)).keep_alive(lambda: next(answers)))
    with pytest.raises(RuntimeError, match="StopIteration"):  # all four answers were asked for
        await asyncio.wait_for(task, 10)

    assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    with pytest.raises(BlockingIOError):
        manager.recv(100)


@pytest.mark.parametrize(
    "others", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {**SOON, "WATCHDOG_PID": "1"}], ids=str
)
async def test_no_watchdog_no_pings(manager: socket.socket, others: dict[str, str]) -> None:
    """Without a watchdog, with one that is meant for another process, or with nonsense, nothing is said."""
    manager.setblocking(False)
    await ServiceManager(environment(manager, **others)).keep_alive(lambda: True)

    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_without_a_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    """No NOTIFY_SOCKET, no word."""
    ServiceManager({}).ready()

    assert not caplog.records


def test_a_manager_that_is_gone_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A socket that cannot be reached does no harm, and is one warning however often it is tried."""
    told = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")})
    told.ready()
    told.stopping()

    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "cannot reach the service manager")
    ]


def test_a_daemon_reports_its_life(manager: socket.socket, tmp_path: Path) -> None:
    """A daemon says READY when it can be connected to, then that it is alive, and STOPPING after SIGTERM."""
    told = {**os.environ, **environment(manager, WATCHDOG_USEC="200000")}
    with daemon(tmp_path, *QUICK, environment=told) as running:
        heard = {manager.recv(100)}
        while b"READY=1" not in heard:
            heard.add(manager.recv(100))
        running.wait_until(lambda: bool(running.url))
        assert running.get("/-/healthy")[0] == 200
        while b"WATCHDOG=1" not in heard:
            heard.add(manager.recv(100))
        running.process.send_signal(signal.SIGTERM)
        while b"STOPPING=1" not in heard:
            heard.add(manager.recv(100))

        assert running.process.wait(5) == 0
