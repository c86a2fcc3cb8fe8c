"""Hosts on which something that programs take for granted is missing: the daemon measures there like anywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import PACKAGE
from tests.daemons import Daemon, daemon
from tests.faults.subjects import LANES, OFTEN, PATIENCE, ends
from tests.processes import children
from tests.tools import require

NOBODY = "64999"  # of whom there is no other process whose number would count
CPU = str(max(os.sched_getaffinity(0)))

DEAF = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def shell(script: str) -> tuple[str, ...]:
    """Return a wrapper that runs a line of shell before the daemon."""
    return ("sh", "-c", f'{script}; exec "$@"', "sh")


@dataclass(frozen=True, kw_only=True)
class Circumstance:
    """What is done before the daemon starts, and what must stand in its log or not among its metrics."""

    wrapper: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    privileged: bool = False
    log: str = ""
    metrics: tuple[str, ...] = ()
    no_metrics: tuple[str, ...] = field(default=())


CIRCUMSTANCES = {
    "an empty environment": Circumstance(environment={}),
    "no home and no PATH": Circumstance(environment={"HOME": "/nonexistent", "LANG": "xx_YY.utf-8", "TMPDIR": "/none"}),
    "no standard streams": Circumstance(wrapper=shell("exec <&- >&-")),
    "a read-only root file system": Circumstance(
        wrapper=("unshare", "-m", *shell("mount -o remount,bind,ro /")), privileged=True
    ),
    "no /proc": Circumstance(
        wrapper=("unshare", "-m", *shell("mount -t tmpfs -o ro none /proc")),
        privileged=True,
        no_metrics=("process_resident_memory_bytes", "aes_kernel_driver_info{"),
    ),
    "no /sys": Circumstance(wrapper=("unshare", "-m", *shell("mount -t tmpfs -o ro none /sys")), privileged=True),
    "process 1 of a namespace": Circumstance(
        wrapper=("unshare", "-p", "-f", "--mount-proc", "--kill-child"), privileged=True
    ),
    "another user": Circumstance(
        wrapper=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"),
        privileged=True,
    ),
    "an affinity mask of one CPU": Circumstance(
        wrapper=("taskset", "-c", CPU), metrics=(f"aes_exporter_run_cpu {CPU}.0",)
    ),
    "a CPU that is not there": Circumstance(
        flags=("--benchmark.cpu=1023",),
        log="not pinned to a CPU: Invalid argument",
        no_metrics=("aes_exporter_run_cpu ",),
    ),
    "a nice value that is refused": Circumstance(
        wrapper=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"),
        flags=("--benchmark.nice=-5",),
        privileged=True,
        log="nice -5 refused: Permission denied",
    ),
    "a memory limit": Circumstance(wrapper=shell("ulimit -v 400000")),
    "a small stack": Circumstance(wrapper=shell("ulimit -s 512")),
    "files of no size": Circumstance(wrapper=shell("trap '' XFSZ; ulimit -f 100")),
    "umask 777": Circumstance(wrapper=shell("umask 777")),
    "signals ignored and blocked by the parent": Circumstance(wrapper=(sys.executable, "-c", DEAF)),
}


@pytest.fixture
def started(circumstance: Circumstance, tmp_path: Path) -> Iterator[Daemon]:
    for program in circumstance.wrapper[:1]:
        require(program)
    if circumstance.privileged and not permitted(circumstance):
        pytest.skip("this user, or this container, may not do that")
    with ExitStack() as stack:
        yield stack.enter_context(
            daemon(
                tmp_path,
                *OFTEN,
                *circumstance.flags,
                wrapper=circumstance.wrapper,
                environment=circumstance.environment,
            )
        )


def permitted(circumstance: Circumstance) -> bool:
    """Whether this user may do what the wrapper does, and package and interpreter can be used there.

    A shell in between starts that interpreter, since what the wrapper itself starts still has its privileges.
    """
    probe = ("sh", "-c", 'test -r "$1" && "$0" -c ""', sys.executable, str(PACKAGE / "__init__.py"))
    return subprocess.run((*circumstance.wrapper, *probe), capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES.values(), ids=CIRCUMSTANCES.keys())
def test_it_measures_and_ends(started: Daemon, circumstance: Circumstance) -> None:
    """It starts, measures every lane run after run, serves metrics and page, and ends at SIGTERM without a trace."""
    started.wait_until(lambda: bool(started.url), PATIENCE)
    started.wait_until(lambda: all(map(started.up, LANES)), PATIENCE)
    started.wait_until(lambda: (started.value("aes_exporter_runs_total") or 0) >= 2, PATIENCE)

    metrics = started.metrics()
    assert [each for each in circumstance.metrics if f"\n{each}" not in metrics] == []
    assert [each for each in circumstance.no_metrics if f"\n{each}" in metrics] == []
    assert (started.get("/")[0], started.get("/-/healthy")[0]) == (200, 200)
    log = started.log.read_text()
    assert circumstance.log in log
    assert "Traceback" not in log

    forked = "-f" in circumstance.wrapper
    assert ends(started, pid=children(started.process.pid)[0] if forked else None)
