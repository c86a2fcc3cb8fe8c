"""How the rooms of the daemon are joined, with a run and a host that are made up."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import urllib.request
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aes_exporter import cli, config, host, rounds, server
from aes_exporter.model import Host, Plan, Run
from tests.snapshots import HOST, RUN


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """Leave the handling of signals as it was found."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


async def fetched(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return str(reply.read().decode())

    return await asyncio.to_thread(fetch)


async def test_the_host_is_completed_after_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long to find out about the host is asked once, after the first run, and then shown."""
    asked = []

    async def measure(plan: Plan, _host: Host) -> Run:
        asked.append(f"run with pauses of {plan.pause_seconds} s")
        return RUN

    async def complete(known: Host) -> Host:
        asked.append("host")
        return replace(known, brand="Made-Up 9000")

    monkeypatch.setattr(host, "read", lambda: replace(HOST, brand=""))
    monkeypatch.setattr(host, "complete", complete)
    monkeypatch.setattr(rounds, "measure", measure)
    settings = config.load("serve", {"--web.listen-address": ["127.0.0.1:0"]}, {})
    sockets = server.listen(settings.listen)
    page = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"

    daemon = asyncio.create_task(cli._daemon(settings, sockets))
    async with asyncio.timeout(10):
        while "Made-Up 9000" not in await fetched(page):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await daemon

    assert asked == ["run with pauses of 0.0 s", "host"]


class Cycle:
    """Something that only the garbage collector can end."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_is_collected_after_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has become old is not left to the collector, which would let memory grow for hours before it looks."""

    async def measure(_plan: Plan, _host: Host) -> Run:
        return RUN

    async def complete(known: Host) -> Host:
        return known

    monkeypatch.setattr(host, "complete", complete)
    monkeypatch.setattr(rounds, "measure", measure)
    settings = config.load("serve", {"--web.listen-address": ["127.0.0.1:0"]}, {})
    sockets = server.listen(settings.listen)
    page = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/-/healthy"
    gc.disable()
    left = weakref.ref(Cycle())
    assert left() is not None
    try:
        daemon = asyncio.create_task(cli._daemon(settings, sockets))
        async with asyncio.timeout(10):
            while left() is not None:
                await fetched(page)
            os.kill(os.getpid(), signal.SIGTERM)
            await daemon
    finally:
        gc.enable()


async def test_a_second_signal_is_left_to_the_system() -> None:
    """The first signal asks for a clean end; after it both signals end the process at once, as they do by default."""
    stop = cli._stopped_by_signal()
    assert not stop.is_set()

    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5):
        await stop.wait()

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [signal.SIG_DFL] * 2
