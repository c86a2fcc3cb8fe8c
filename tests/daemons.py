"""Real daemons for tests: started as a user starts them, scraped over HTTP, and ended for certain."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

QUICK = (
    "--benchmark.rounds=5",
    "--benchmark.slice=100us",
    "--benchmark.pause=0",
    "--benchmark.block-size=16,1024",
    "--benchmark.engine=libcrypto",
)
"""Flags for a run of a few milliseconds."""


@dataclass(frozen=True)
class Daemon:
    """A running daemon and where its log goes."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Where it listens, by its own log. Empty before it says so."""
        match = re.search(r"addresses=(127\.0\.0\.1:\d+)", self.log.read_text())
        return f"http://{match[1]}" if match else ""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return status and body of a request."""
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> str:
        return self.get("/metrics")[1]

    def value(self, series: str) -> float | None:
        """Return the value of a series of the latest scrape, by its name and labels as they are written there."""
        match = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(match[1]) if match else None

    def failures(self, lane: str, reason: str) -> float:
        """Return how often a lane such as "libcrypto/hardware" failed for a reason."""
        engine, path = lane.split("/")
        labels = f'engine="{engine}",path="{path}",reason="{reason}"'
        return self.value(f"aes_exporter_failures_total{{{labels}}}") or 0.0

    def up(self, lane: str) -> bool:
        """Return whether the latest run measured a lane."""
        engine, path = lane.split("/")
        return self.value(f'aes_exporter_path_up{{engine="{engine}",path="{path}"}}') == 1

    def wait_until(self, condition: Callable[[], bool], seconds: float = 15) -> None:
        """Wait for a condition; fail with the log if it does not come or the daemon ends."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def wait_until_ready(self) -> None:
        """Wait until the first run has ended."""
        self.wait_until(lambda: bool(self.url))
        self.wait_until(lambda: self.get("/-/ready")[0] == 200)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(5)


@contextmanager
def daemon(
    folder: Path,
    *flags: str,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
) -> Iterator[Daemon]:
    """Start a daemon on a free port of the loopback, by way of the `wrapper` command; its log goes below `folder`."""
    log = folder / "daemon.log"
    command = (*wrapper, python, "-m", "aes_exporter", "--web.listen-address=127.0.0.1:0", *flags)
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, cwd=folder, env=environment)
    try:
        yield Daemon(process=process, log=log)
    finally:
        process.kill()
        process.wait()
