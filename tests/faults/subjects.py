"""Daemons to be hurt: how to break a real worker at any stage, and what must be true once the fault is gone."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import PACKAGE
from tests.daemons import QUICK, Daemon, daemon
from tests.processes import children, descriptors

LANES = ("libcrypto/hardware", "libcrypto/software")
OFTEN = (*QUICK, "--benchmark.interval=1s")
SELDOM = (*QUICK, "--benchmark.interval=2s")
"""Time enough for a run in which workers hang for a second."""

PATIENCE = 40.0
"""Seconds within which anything happens, on a machine that is busy with other things."""

# Appended to the worker's program: before and after each message it runs whatever stands in fault.py.
_FAULTS = """
from pathlib import Path

_send = Channel.send

def _reached(stage, channel):
    fault = Path(__file__).parents[2] / "fault.py"
    path = "software" if "OPENSSL_ia32cap" in os.environ else "hardware"
    if fault.exists():
        exec(fault.read_text(), {"stage": stage, "path": path, "channel": channel, "os": os, "signal": signal})

def _send_with_faults(channel, message):
    _reached(f"before {type(message).__name__}", channel)
    _send(channel, message)
    _reached(f"after {type(message).__name__}", channel)

Channel.send = _send_with_faults
"""


def copied(folder: Path) -> Path:
    """Copy the package below a folder, with workers that may have faults, and a daemon that waits a second for them."""
    package = folder / "aes_exporter"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    worker = package / "worker" / "__main__.py"
    worker.write_text(worker.read_text() + _FAULTS)
    replace(package / "workers.py", "REPLY_SECONDS = 10.0", "REPLY_SECONDS = 1.0")
    return package


def replace(file: Path, old: str, new: str) -> None:
    """Replace a piece of a file that must be in it."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@dataclass(frozen=True, kw_only=True)
class Patient:
    """A daemon under test, the folder it runs in, and what belonged to it before anything went wrong."""

    daemon: Daemon
    folder: Path
    descriptors: int
    files: list[str]

    def break_workers(self, code: str) -> None:
        """Have every worker from now on run Python code with `stage`, `path` and `channel` at hand; "" heals them."""
        fault = self.folder / "fault.py"
        if code:
            (self.folder / "fault.tmp").write_text(code)
            (self.folder / "fault.tmp").rename(fault)
        else:
            fault.unlink()

    def wait_for_failure(self, reason: str, lane: str = LANES[0]) -> str:
        """Wait until a lane fails for a reason once more, and return what the log says of it."""
        before = self.daemon.failures(lane, reason)
        self.daemon.wait_until(lambda: self.daemon.failures(lane, reason) > before, PATIENCE)
        self.daemon.wait_until(lambda: not self.daemon.up(lane), PATIENCE)
        assert reason in self.daemon.get("/")[1]
        engine, path = lane.split("/")
        start = f'msg="lane failed" engine={engine} path={path} reason={reason}'
        return next(line for line in reversed(self.daemon.log.read_text().splitlines()) if start in line)

    def next_run(self) -> None:
        """Wait until a run has ended."""
        runs = self.daemon.value("aes_exporter_runs_total") or 0
        self.daemon.wait_until(lambda: (self.daemon.value("aes_exporter_runs_total") or 0) > runs, PATIENCE)

    def wait_for_recovery(self) -> None:
        """Wait until all lanes are measured again, and nothing is left of what went wrong."""
        self.next_run()
        self.daemon.wait_until(lambda: all(map(self.daemon.up, LANES)), PATIENCE)
        self.daemon.wait_until(self.is_clean, PATIENCE)
        assert self.daemon.get("/-/healthy")[0] == 200

    def is_clean(self) -> bool:
        """Whether there is no process, descriptor or file but those that a daemon has between two runs."""
        pid = self.daemon.process.pid
        return (children(pid), descriptors(pid), listed(self.folder)) == ([], self.descriptors, self.files)


def listed(folder: Path) -> list[str]:
    """Return the files below a folder, without what Python caches."""
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@contextmanager
def patient(
    folder: Path, *flags: str, wrapper: tuple[str, ...] = (), pace: tuple[str, ...] = OFTEN
) -> Iterator[Patient]:
    """Start a daemon with a run every second in `folder`, which it also has for temporary files.

    In the end it must go at a SIGTERM, and its log must not have a traceback.
    """
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with daemon(folder, *pace, *flags, environment=environment, wrapper=wrapper) as subject:
        subject.wait_until(lambda: bool(subject.url), PATIENCE)
        subject.wait_until(lambda: all(map(subject.up, LANES)), PATIENCE)
        subject.wait_until(lambda: not children(subject.process.pid), PATIENCE)
        found = descriptors(subject.process.pid)
        yield Patient(daemon=subject, folder=folder, descriptors=found, files=listed(folder))
        assert "Traceback" not in subject.log.read_text()
        assert ends(subject)


def ends(subject: Daemon, number: signal.Signals = signal.SIGTERM, pid: int | None = None) -> bool:
    """Whether a daemon ends with 0 within two seconds of a signal, and no process of its is left."""
    workers = children(pid or subject.process.pid)
    assert "msg=stopping" not in subject.log.read_text()
    began = time.monotonic()
    os.kill(pid or subject.process.pid, number)
    code = subject.process.wait(10)
    return (
        code == 0 and time.monotonic() - began < 2 and not any(Path(f"/proc/{worker}").exists() for worker in workers)
    )
