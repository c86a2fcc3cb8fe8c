"""Real daemons for tests: started as a user starts them, scraped over HTTP, and ended for certain."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
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
    folder: Path, *flags: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[Daemon]:
    """Start a daemon on a free port of the loopback; its log goes to a file below `folder`."""
    log = folder / "daemon.log"
    command = (python, "-m", "aes_exporter", "--web.listen-address=127.0.0.1:0", *flags)
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, cwd=folder, env=environment)
    try:
        yield Daemon(process=process, log=log)
    finally:
        process.kill()
        process.wait()
