"""Whole systems for tests: Debian booted by its own systemd in a container of systemd-nspawn, on the host's network."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.debian import run
from tests.processes import children
from tests.tools import require, require_root


@dataclass(frozen=True)
class Machine:
    """A booted system. `leader` is the process number of its systemd, seen from outside."""

    root: Path
    leader: int

    def command(self, *command: str) -> tuple[str, ...]:
        """Return the command that runs another one inside, free of any hardening."""
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")
        clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")
        return (require("nsenter"), f"--target={self.leader}", *namespaces, *clean, *command)

    def __call__(self, *command: str) -> str:
        """Run a command inside; return what it printed."""
        return run(*self.command(*command))

    def attempt(self, *command: str) -> tuple[int, str]:
        """Run a command that may fail inside; return its exit code and all it said."""
        finished = subprocess.run(self.command(*command), capture_output=True, text=True, check=False)
        return finished.returncode, finished.stdout + finished.stderr

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def journal(self, unit: str) -> str:
        return self("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")


@contextmanager
def booted(root: Path, *more: str) -> Iterator[Machine]:
    """Boot the system below a folder, with more options for nspawn, and power it off at the end."""
    require_root()
    nspawn = require("systemd-nspawn")
    options = ("--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe")
    privileges = ("--capability=all", "--system-call-filter=bpf")  # what a real init has
    # The unified hierarchy is what newer systems have, and what the address filters of units need.
    environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    command = (nspawn, f"--directory={root}", *options, *privileges, *more)
    with (root.parent / f"{root.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    leader = None
    try:
        leader = _leader(process)
        machine = Machine(root=root, leader=leader)
        _wait_until_up(machine)
        yield machine
        machine.attempt("systemctl", "poweroff")
        process.wait(30)
    finally:
        if process.poll() is None and leader:
            os.kill(leader, signal.SIGKILL)
        process.kill()
        process.wait()


def _leader(process: subprocess.Popen[bytes]) -> int:
    """Return the process number of the system's first process; others that nspawn starts before are gone soon."""
    deadline = time.monotonic() + 30
    while True:
        for child in children(process.pid):
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    return child
        assert process.poll() is None, "systemd-nspawn ended"
        assert time.monotonic() < deadline, "systemd-nspawn started nothing"
        time.sleep(0.05)


def _wait_until_up(machine: Machine) -> None:
    deadline = time.monotonic() + 60
    # degraded: a container may not load kernel modules
    while (state := machine.attempt("systemctl", "is-system-running")[1].strip()) not in ("running", "degraded"):
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
