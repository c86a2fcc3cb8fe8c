"""Faults of the daemon's own surroundings while it runs: limits, clocks, files replaced under it, a full disk."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.faults.subjects import LANES, PATIENCE, Patient, copied, patient
from tests.faults.test_circumstances import CIRCUMSTANCES, NOBODY, permitted, shell
from tests.tools import require

HARDWARE = "engine=libcrypto path=hardware"
ANOTHER_USER = CIRCUMSTANCES["another user"]


# Limits that come while it runs


def limit(subject: Patient, what: str, value: str, user: str = "") -> None:
    """Set the soft limit of a running daemon; the kernel wants the same user for that."""
    command = ("prlimit", f"--pid={subject.daemon.process.pid}", f"--{what}={value}:")
    as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
    subprocess.run((*as_user, *command), check=True)


def test_no_process_can_be_started(tmp_path: Path) -> None:
    """While the user has no process left (EAGAIN), lanes are spawn_failed; with one again, they recover."""
    require("prlimit")
    if not permitted(ANOTHER_USER):
        pytest.skip("this user may not become another one")
    tmp_path.chmod(0o777)
    with patient(tmp_path, wrapper=ANOTHER_USER.wrapper) as subject:
        for allowed in ("1", "2"):  # with 2 there is a child, but no thread to watch it
            limit(subject, "nproc", allowed, NOBODY)
            assert "Resource temporarily unavailable" in subject.wait_for_failure("spawn_failed", LANES[1])
            limit(subject, "nproc", "1000", NOBODY)
            subject.wait_for_recovery()


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """Without descriptors lanes are spawn_failed, and a connection that is open is still served."""
    require("prlimit")
    with patient(tmp_path) as subject, socket.create_connection(("127.0.0.1", port(subject))) as client:
        client.settimeout(10)
        assert scrape(client).startswith(b"HTTP/1.1 200")
        limit(subject, "nofile", "3")
        deadline = time.monotonic() + PATIENCE
        while b'path="hardware",reason="spawn_failed"} 0.0' in (answer := scrape(client)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert answer.startswith(b"HTTP/1.1 200")
        limit(subject, "nofile", "1024")
        subject.daemon.wait_until(lambda: "Too many open files" in subject.daemon.log.read_text(), PATIENCE)
        client.close()
        subject.wait_for_recovery()


def test_no_memory_is_left(tmp_path: Path) -> None:
    """When neither the daemon nor its workers get any more memory, lanes fail, and recover as soon as there is some."""
    require("prlimit")
    with patient(tmp_path) as subject:
        limit(subject, "as", "10000000")  # less than it has already
        subject.daemon.wait_until(lambda: f'msg="lane failed" {HARDWARE}' in subject.daemon.log.read_text(), PATIENCE)
        for _ in range(20):
            with suppress(OSError, HTTPException):  # it may answer, and that it lives on is what counts
                subject.daemon.get("/metrics")
        limit(subject, "as", "unlimited")
        subject.wait_for_recovery()


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group that may have 150 MB of memory."""
    below = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").is_dir() else Path("/sys/fs/cgroup")
    group = below / f"aes-exporter-test-{os.getpid()}"
    try:
        group.mkdir()
        limit_file = next(group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())
        limit_file.write_text(str(150 << 20))
    except (OSError, StopIteration):
        pytest.skip("no control group for memory can be made here")
    yield group
    group.rmdir()


def test_the_memory_of_its_group_is_used_up(tmp_path: Path, memory_group: Path) -> None:
    """A worker that the kernel kills for want of memory costs its lane a run, and the daemon nothing."""
    folder = tmp_path / "run"
    folder.mkdir()
    copied(folder)
    with patient(folder, wrapper=shell(f"echo $$ > {memory_group}/cgroup.procs")) as subject:
        subject.break_workers(
            "if stage == 'before Slices' and path == 'hardware': bytearray(os.urandom(1)) * (1 << 29)"
        )
        assert "ended by SIGKILL" in subject.wait_for_failure("signal")
        subject.break_workers("")
        subject.wait_for_recovery()


def port(subject: Patient) -> int:
    return int(subject.daemon.url.rpartition(":")[2])


def scrape(client: socket.socket) -> bytes:
    """Scrape over a connection that stays open, and return the answer."""
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = client.recv(65536)
    length = re.search(rb"content-length: (\d+)", answer.partition(b"\r\n\r\n")[0].lower())
    assert length, answer
    while len(answer.partition(b"\r\n\r\n")[2]) < int(length[1]):
        answer += client.recv(65536)
    return answer


# Time


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[tuple[Patient, Callable[[int], None]]]:
    """A daemon and a function that shifts its wall clock by seconds."""
    library, clock = tmp_path / "wallclock.so", tmp_path / "wallclock"
    source = Path(__file__).with_name("wallclock.c")
    subprocess.run((require("cc"), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"), check=True)
    clock.write_bytes(bytes(8))

    def step(seconds: int) -> None:
        with clock.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    with patient(tmp_path, wrapper=("env", f"LD_PRELOAD={library}", f"WALLCLOCK={clock}")) as subject:
        yield subject, step


@pytest.mark.parametrize("seconds", [3600, -3600, 400 * 86400])
def test_the_wall_clock_is_stepped(stepped: tuple[Patient, Callable[[int], None]], seconds: int) -> None:
    """Runs go on at their interval when the clock is set forwards or back, and the new time is what they report."""
    subject, step = stepped
    runs = subject.daemon.value("aes_exporter_runs_total") or 0
    step(seconds)
    subject.daemon.wait_until(lambda: (subject.daemon.value("aes_exporter_runs_total") or 0) >= runs + 3, PATIENCE)

    last = subject.daemon.value("aes_exporter_last_run_timestamp_seconds") or 0
    assert abs(last - time.time() - seconds) < 60
    assert (subject.daemon.value("aes_exporter_runs_skipped_total") or 0) < 100  # and not the 3600 of an hour
    subject.wait_for_recovery()


def test_the_scheduler_wakes_late(tmp_path: Path) -> None:
    """After a suspend the runs that were missed are counted, not made up for, and the next is a run like any."""
    with patient(tmp_path) as subject:
        before = subject.daemon.value("aes_exporter_runs_skipped_total") or 0
        subject.daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        subject.daemon.process.send_signal(signal.SIGCONT)
        subject.wait_for_recovery()

        assert (subject.daemon.value("aes_exporter_runs_skipped_total") or 0) >= before + 2


# Files that are replaced


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What happens to a file, and the failure that it means."""

    happens: Callable[[Path], object]
    reason: str
    detail: str


def real_libcrypto() -> Path:
    """Return the file of the system's libcrypto."""
    code = "import ctypes,sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read())"
    for name in ("libcrypto.so.3", "libcrypto.so.4", "libcrypto.so.1.1"):
        found = subprocess.run((sys.executable, "-c", code, name), capture_output=True, text=True, check=False).stdout
        if match := re.search(rf"/\S*{re.escape(name)}\S*", found):
            return Path(match[0])
    pytest.skip("no libcrypto here")


LIBRARIES = {
    "removed": Replacement(happens=Path.unlink, reason="engine_unavailable", detail="No such file or directory"),
    "half written": Replacement(
        happens=lambda file: renamed(file, file.read_bytes()[:100_000]), reason="signal", detail="ended by SIGBUS"
    ),
    "another file": Replacement(
        happens=lambda file: renamed(file, b"<html>not found</html>" * 100),
        reason="engine_unavailable",
        detail="invalid ELF header",
    ),
    "for another machine": Replacement(
        happens=lambda file: renamed(file, file.read_bytes()[:18] + b"\xff\x7f" + file.read_bytes()[20:]),
        reason="engine_unavailable",
        detail="libcrypto.so",
    ),
}


def renamed(file: Path, content: bytes) -> None:
    """Replace a file as a package manager does: those who have the old one mapped keep it."""
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.rename(file)


@pytest.mark.timeout(180)
def test_libcrypto_is_replaced_on_disk(tmp_path: Path) -> None:
    """Each run measures the library that is there then; what is no library is a failure until there is one again."""
    file = tmp_path / "libcrypto.so"
    good = real_libcrypto().read_bytes()
    renamed(file, good)
    with patient(tmp_path, f"--benchmark.libcrypto={file}") as subject:
        assert f'file="{file}"' in subject.daemon.metrics()
        for replacement in LIBRARIES.values():
            replacement.happens(file)
            assert replacement.detail in subject.wait_for_failure(replacement.reason)
            assert f'file="{file}"' not in subject.daemon.metrics()
            renamed(file, good)
            subject.wait_for_recovery()


@pytest.mark.timeout(180)
def test_libcrypto_is_cut_off_under_a_worker(tmp_path: Path) -> None:
    """A library that is overwritten in place takes the workers that have it mapped with it, and nothing else."""
    folder = tmp_path / "run"
    folder.mkdir()
    copied(folder)
    file = folder / "libcrypto.so"
    good = real_libcrypto().read_bytes()
    renamed(file, good)
    with patient(folder, f"--benchmark.libcrypto={file}") as subject:
        subject.break_workers(f"if stage == 'before Slices': os.truncate({str(file)!r}, 4096)")
        assert "ended by SIG" in subject.wait_for_failure("signal")
        subject.break_workers("")
        renamed(file, good)
        subject.wait_for_recovery()


PACKAGES = {
    "another version": Replacement(
        happens=lambda package: re_versioned(package, "99.0.0"),
        reason="version_mismatch",
        detail="the worker on disk is 99.0.0, this daemon ",
    ),
    "an empty file": Replacement(
        happens=lambda package: (package / "worker" / "__main__.py").write_text(""),
        reason="crash",
        detail="exit code 1: ImportError: cannot import name 'main'",
    ),
    "half a file": Replacement(
        happens=lambda package: (package / "worker" / "messages.py").write_text("def (\n"),
        reason="crash",
        detail="exit code 1: SyntaxError",
    ),
}


def re_versioned(package: Path, version: str) -> None:
    """Change the version that the package says it has."""
    file = package / "__init__.py"
    file.write_text(re.sub(r'__version__ = "[^"]*"', f'__version__ = "{version}"', file.read_text()))


@pytest.mark.timeout(180)
def test_the_package_is_upgraded_on_disk(tmp_path: Path) -> None:
    """While an upgrade is under way lanes fail; after it they are a version_mismatch that asks for the restart."""
    package = copied(tmp_path)
    kept = tmp_path.with_name(tmp_path.name + "-kept")
    shutil.copytree(package, kept)
    with patient(tmp_path) as subject:
        for replacement in PACKAGES.values():
            replacement.happens(package)
            assert replacement.detail in subject.wait_for_failure(replacement.reason)
            assert subject.daemon.get("/")[0] == 200
            shutil.rmtree(package, ignore_errors=True)
            shutil.copytree(kept, package)
            subject.wait_for_recovery()

        re_versioned(package, "99.0.0")
        assert "restart it" in subject.wait_for_failure("version_mismatch")
    with patient(tmp_path) as restarted:
        assert restarted.daemon.value(f'aes_exporter_build_info{{python_version="{PYTHON}",version="99.0.0"}}') == 1


PYTHON = ".".join(map(str, sys.version_info[:3]))


# A full disk


def test_a_full_disk_under_the_output(tmp_path: Path) -> None:
    """bench says in one line that the disk is full and ends with 1; the old file is whole, and nothing is beside it."""
    script = (
        'mount -t tmpfs -o size=16k none "$1" && echo old > "$1/file" && '
        'dd if=/dev/zero of="$1/full" bs=1k 2>/dev/null;'
        'shift; "$@"; echo $?; cd "$0"; cat file; ls -A'
    )
    flags = ("--benchmark.rounds=5", "--benchmark.slice=100us", "--benchmark.engine=libcrypto", "--format=json")
    command = (sys.executable, "-m", "aes_exporter", "bench", *flags, f"--output={tmp_path}/file")
    if subprocess.run(("unshare", "-m", "true"), capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    wrapper = ("unshare", "-m", "sh", "-c", script, str(tmp_path), str(tmp_path))
    result = subprocess.run((*wrapper, *command), capture_output=True, text=True, check=False, timeout=50)

    assert result.stdout.split() == ["1", "old", "file", "full"]
    assert result.stderr == f"aes-exporter: {tmp_path}/file: No space left on device\n"
