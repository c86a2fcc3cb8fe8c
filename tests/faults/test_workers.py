"""Real workers that go wrong at every stage: one daemon lives through all of it and is as good as new after each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemons import daemon
from tests.faults.subjects import LANES, PATIENCE, SELDOM, Patient, copied, patient
from tests.processes import alive, children


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a worker does at a stage, and the failure that must come of it."""

    stage: str
    does: str
    reason: str
    detail: str

    def code(self) -> str:
        return f"if stage == {self.stage!r}:\n    {self.does}"


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
STARVE = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))"

FAULTS = {
    **{
        f"killed {stage}": Fault(stage=stage, does=KILL, reason="signal", detail="ended by SIGKILL")
        for stage in ("before Hello", "after Hello", "before Ready", "after Ready", "before Slices", "after Slices")
    },
    **{
        f"stopped {stage}": Fault(stage=stage, does=STOP, reason="timeout", detail="no reply within 1 s")
        for stage in ("before Hello", "before Ready", "before Slices")
    },
    "no memory to set up": Fault(stage="after Hello", does=STARVE, reason="engine_unavailable", detail="map"),
    "no memory in a turn": Fault(
        stage="before Slices", does=f"{STARVE}; bytes(1 << 30)", reason="crash", detail="exit code 1: MemoryError"
    ),
    "floods the daemon": Fault(
        stage="before Slices",
        does="while True: channel._outgoing.write(b'x' * 65536)",
        reason="bad_reply",
        detail="a reply of more than 1048576 bytes",
    ),
    "floods the daemon with lines": Fault(
        stage="before Slices",
        does="while True: channel._outgoing.write(b'{}\\n' * 10000)",
        reason="bad_reply",
        detail="no list in slices",
    ),
    "floods standard error": Fault(
        stage="before Slices",
        does="[os.write(2, b'noise ' * 10000 + b'\\n') for _ in range(200)]; os._exit(3)",
        reason="crash",
        detail="noise noise noise",
    ),
    "half a line": Fault(
        stage="before Slices",
        does="channel._outgoing.write(b'{\"slices\"'); os._exit(0)",
        reason="bad_reply",
        detail="the reply ended in the middle of a line",
    ),
    "closes its output": Fault(
        stage="after Ready", does="os.close(channel._outgoing.fileno())", reason="crash", detail="Bad file descriptor"
    ),
    "divides by zero": Fault(
        stage="before Ready", does="1 / 0", reason="crash", detail="exit code 1: ZeroDivisionError: division by zero"
    ),
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    """One daemon for all faults, so that what one of them leaves behind would add up."""
    folder = tmp_path_factory.mktemp("workers")
    copied(folder)
    with patient(folder, pace=SELDOM) as started:
        yield started


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_every_worker_fails(subject: Patient, fault: Fault) -> None:
    """The lanes fail with the reason and the words of the fault, and recover by themselves once it is gone."""
    subject.break_workers(fault.code())
    try:
        assert fault.detail in subject.wait_for_failure(fault.reason)
        assert subject.daemon.get("/")[0] == 200
    finally:
        subject.break_workers("")
    subject.wait_for_recovery()


@pytest.mark.timeout(180)
def test_one_worker_hangs_while_the_others_deliver(subject: Patient) -> None:
    """A worker that hangs fails alone: the other lane is measured in the same run, and its figures are published."""
    subject.break_workers(f"if stage == 'before Slices' and path == 'software':\n    {STOP}")
    try:
        subject.wait_for_failure("timeout", LANES[1])
        subject.daemon.wait_until(lambda: subject.daemon.up(LANES[0]) and not subject.daemon.up(LANES[1]), PATIENCE)
        assert 'aes_throughput_bytes_per_second{algorithm="aes-128-cbc"' in subject.daemon.metrics()
    finally:
        subject.break_workers("")
    subject.wait_for_recovery()


@pytest.mark.timeout(180)
def test_a_cpu_is_taken_offline(subject: Patient) -> None:
    """If the CPU that the first worker chose is gone for the second, that one is measured unpinned, and says so."""
    subject.break_workers(
        "if stage == 'after Hello' and path == 'software':\n"
        "    def refuse(pid, cpus): raise OSError(22, 'Invalid argument')\n"
        "    os.sched_setaffinity = refuse"
    )
    try:
        subject.daemon.wait_until(
            lambda: 'path=software detail="not pinned to a CPU: Invalid argument"' in subject.daemon.log.read_text(),
            PATIENCE,
        )
    finally:
        subject.break_workers("")
    subject.wait_for_recovery()


def test_a_worker_is_killed_from_outside(tmp_path: Path) -> None:
    """A worker that somebody else ends, such as the kernel for want of memory, costs its lane one run."""
    flags = (
        "--benchmark.rounds=2000",
        "--benchmark.engine=libcrypto",
        "--benchmark.pause=0",
        "--benchmark.interval=1h",
    )
    with daemon(tmp_path, *flags) as subject:
        subject.wait_until(lambda: len(children(subject.process.pid)) == 2, PATIENCE)
        hardware = min(children(subject.process.pid))
        os.kill(hardware, signal.SIGKILL)
        subject.wait_until(lambda: not alive(hardware), PATIENCE)

        assert len(children(subject.process.pid)) == 1
        assert subject.get("/-/healthy")[0] == 200


@pytest.mark.parametrize("state", ["at work", "stopped"])
def test_no_worker_outlives_the_daemon(tmp_path: Path, state: str) -> None:
    """After kill -9 of the daemon its workers are gone, also one that is stopped and reads no end of input."""
    flags = (
        "--benchmark.rounds=2000",
        "--benchmark.engine=libcrypto",
        "--benchmark.pause=0",
        "--benchmark.interval=1h",
    )
    with daemon(tmp_path, *flags) as subject:
        subject.wait_until(lambda: subject.value("aes_exporter_run_in_progress") == 1 if subject.url else False)
        subject.wait_until(lambda: len(children(subject.process.pid)) == 2, PATIENCE)
        subject.wait_until(lambda: all(map(_is_set_up, children(subject.process.pid))), PATIENCE)
        workers = children(subject.process.pid)
        if state == "stopped":
            for worker in workers:
                os.kill(worker, signal.SIGSTOP)
        subject.process.kill()
        subject.process.wait()
    _wait_until_gone(workers)


def _is_set_up(pid: int) -> bool:
    """Whether a worker has loaded the library, which it does long after it tied itself to the daemon."""
    return "libcrypto" in Path(f"/proc/{pid}/maps").read_text()


def _wait_until_gone(pids: list[int]) -> None:
    """Wait until processes are gone, or only wait for a new parent, which may be a slow one, to notice their end."""
    deadline = time.monotonic() + PATIENCE
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
