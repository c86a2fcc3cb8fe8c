"""How the daemon ends, in every state that it can be in, and what it makes of hang-ups."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import QUICK, Daemon, daemon
from tests.faults.subjects import PATIENCE, ends
from tests.processes import children

ENDLESS = ("--benchmark.rounds=2000", "--benchmark.engine=libcrypto", "--benchmark.pause=0", "--benchmark.interval=1h")
PAUSING = tuple("--benchmark.pause=1s" if "pause" in flag else flag for flag in (*QUICK, "--benchmark.interval=8s"))


def being_imported(subject: Daemon) -> None:
    """Wait until it has signals wait, which is the first thing it does."""
    subject.wait_until(lambda: _masked(subject, "SigBlk") & 1 << signal.SIGTERM - 1 != 0, PATIENCE)


def in_a_run(subject: Daemon) -> None:
    subject.wait_until(lambda: len(children(subject.process.pid)) == 2, PATIENCE)


def with_stopped_workers(subject: Daemon) -> None:
    in_a_run(subject)
    for worker in children(subject.process.pid):
        os.kill(worker, signal.SIGSTOP)


def between_two_rounds(subject: Daemon) -> None:
    subject.wait_until(lambda: bool(subject.url), PATIENCE)
    subject.wait_until(lambda: subject.value("aes_exporter_runs_total") == 1, PATIENCE)
    in_a_run(subject)


def without_descriptors(subject: Daemon) -> None:
    subject.wait_until_ready()
    os.system(f"prlimit --pid={subject.process.pid} --nofile=3:")


def after_a_hang_up(subject: Daemon) -> None:
    being_imported(subject)
    subject.process.send_signal(signal.SIGHUP)
    subject.wait_until(lambda: bool(subject.url), PATIENCE)
    subject.process.send_signal(signal.SIGHUP)
    subject.wait_until(lambda: "nothing to reload on SIGHUP" in subject.log.read_text(), PATIENCE)


STATES: dict[Callable[[Daemon], None], tuple[str, ...]] = {
    being_imported: QUICK,
    in_a_run: ENDLESS,
    with_stopped_workers: ENDLESS,
    between_two_rounds: PAUSING,
    without_descriptors: QUICK,
    after_a_hang_up: QUICK,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("reach", "flags"), STATES.items(), ids=[state.__name__ for state in STATES])
def test_it_ends(
    tmp_path: Path, reach: Callable[[Daemon], None], flags: tuple[str, ...], number: signal.Signals
) -> None:
    """SIGTERM and SIGINT end it with 0 within two seconds whatever it is doing, and no process is left."""
    with daemon(tmp_path, *flags) as subject:
        reach(subject)

        assert ends(subject, number)
        assert "Traceback" not in subject.log.read_text()


def _masked(subject: Daemon, which: str) -> int:
    status = Path(f"/proc/{subject.process.pid}/status").read_text()
    return int(status.partition(f"{which}:\t")[2].partition("\n")[0] or "0", 16)
