"""The daemon's side of the wall against real processes that misbehave in every way a worker can."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

from aes_exporter import __version__, workers
from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker import messages
from aes_exporter.worker.messages import Setup, Turn
from aes_exporter.workers import Worker, WorkerError
from tests.processes import alive, descriptors

CELL = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=16)
SETUP = Setup(
    version=__version__, engine="libcrypto", libcrypto=None, cells=(CELL,), slice_ns=100_000, nice=0, cpu=None
)
HELLO = f'{{"version":"{__version__}"}}'
READY = '{"library":{"name":"Fake 1","file":"","provider":""},"capabilities":"","cpu":null,"notes":[],"chains":[]}'
SLICES = '{"slices":[[1,100,90]],"chains":[]}'


def script(body: str) -> tuple[str, ...]:
    """Return a command that runs Python lines with `say(line)` and `hear()` at hand."""
    prelude = """
        import os, signal, sys, time
        def say(line): os.write(1, line.encode() + b"\\n")
        def hear(): return sys.stdin.readline()
    """
    return (sys.executable, "-I", "-c", textwrap.dedent(prelude) + textwrap.dedent(body))


async def converse(body: str, *, reply_seconds: float = 5.0) -> Worker:
    """Set a fake worker up and take two turns. Returns the worker, which has ended by then."""
    async with workers.start({}, command=script(body), reply_seconds=reply_seconds) as worker:
        await worker.set_up(SETUP)
        for _ in range(2):
            await worker.take_turn(Turn(first=0, step=1), cells=1)
    return worker


WELL_BEHAVED = f"""
    say('{HELLO}'); hear(); say('{READY}')
    while hear(): say('{SLICES}')
"""

MISBEHAVIOUR = {
    "hangs before its hello": ("time.sleep(60)", Reason.TIMEOUT, "no reply within 0.5 s"),
    "hangs in a turn": (
        f"say('{HELLO}'); hear(); say('{READY}'); hear(); time.sleep(60)",
        Reason.TIMEOUT,
        "no reply within 0.5 s",
    ),
    "replies too late": (
        f"say('{HELLO}'); hear(); say('{READY}'); hear(); time.sleep(2); say('{SLICES}')",
        Reason.TIMEOUT,
        "no reply within 0.5 s",
    ),
    "drips a reply without an end": (
        f"say('{HELLO}'); hear()\nwhile True: os.write(1, b' '); time.sleep(0.05)",
        Reason.TIMEOUT,
        "no reply within 0.5 s",
    ),
    "stops itself": (
        f"say('{HELLO}'); hear(); os.kill(os.getpid(), signal.SIGSTOP)",
        Reason.TIMEOUT,
        "no reply within 0.5 s",
    ),
    "prints garbage": (
        f"say('{HELLO}'); hear(); say('Segmentation fault')",
        Reason.BAD_REPLY,
        "not a JSON object: 'Segmentation fault'",
    ),
    "replies binary": (
        f"say('{HELLO}'); hear(); os.write(1, bytes([0, 255, 10]))",
        Reason.BAD_REPLY,
        r"not a JSON object: '\x00\ufffd'",
    ),
    "replies half a line": (
        f"say('{HELLO}'); hear(); os.write(1, b'{{')",
        Reason.BAD_REPLY,
        "the reply ended in the middle of a line",
    ),
    "replies too much": (
        f"say('{HELLO}'); hear()\nwhile True: os.write(1, b'x' * 65536)",
        Reason.BAD_REPLY,
        f"a reply of more than {messages.MAX_LINE} bytes",
    ),
    "answers another question": (
        f"say('{HELLO}'); hear(); say('{READY}'); hear(); say('{{\"slices\":[]}}')",
        Reason.BAD_REPLY,
        "0 slices where 1 were asked for",
    ),
    "refuses": (
        f'say(\'{HELLO}\'); hear(); say(\'{{"reason":"wrong_answer","detail":"one bit"}}\')',
        Reason.WRONG_ANSWER,
        "one bit",
    ),
    "is of another version": (
        'say(\'{"version":"9.9","whatever":[]}\'); hear()',
        Reason.VERSION_MISMATCH,
        f"the worker on disk is 9.9, this daemon {__version__}: restart it",
    ),
    "exits": (f"say('{HELLO}'); sys.exit(3)", Reason.CRASH, "exit code 3"),
    "exits with words": (
        f"say('{HELLO}'); hear(); sys.exit('No module named aes')",
        Reason.CRASH,
        "exit code 1: No module named aes",
    ),
    "ends without a word": ("pass", Reason.CRASH, "exit code 0"),
    "dies by a signal": (
        f"say('{HELLO}'); hear(); os.kill(os.getpid(), signal.SIGSEGV)",
        Reason.SIGNAL,
        "ended by SIGSEGV",
    ),
    "dies in a turn": (
        f"say('{HELLO}'); hear(); say('{READY}'); hear(); os.kill(os.getpid(), signal.SIGKILL)",
        Reason.SIGNAL,
        "ended by SIGKILL",
    ),
    "closes its output and lives on": (
        f"say('{HELLO}'); hear(); os.close(1); time.sleep(60)",
        Reason.TIMEOUT,
        "no reply within 0.5 s",
    ),
}


async def test_a_well_behaved_worker_is_ended_and_reaped() -> None:
    """After a normal conversation no process and no descriptor is left."""
    before = descriptors()

    worker = await converse(WELL_BEHAVED)

    assert not alive(worker.pid)
    assert descriptors() == before


@pytest.mark.parametrize(("body", "reason", "detail"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR.keys())
async def test_misbehaviour_has_a_reason_and_leaves_nothing(body: str, reason: Reason, detail: str) -> None:
    """Each way to fail gives its own reason in time, and neither a process nor a descriptor survives it."""
    before = descriptors()
    began = time.monotonic()

    with pytest.raises(WorkerError) as failure:
        await converse(body, reply_seconds=0.5 if reason is Reason.TIMEOUT else 20.0)

    assert (failure.value.reason, failure.value.detail) == (reason, detail)
    assert time.monotonic() - began < 5
    assert descriptors() == before


async def test_a_flood_on_standard_error_neither_blocks_nor_costs_memory() -> None:
    """Megabytes on standard error are read away while replies go on, and its last line stays for the record."""
    body = f"""
        say('{HELLO}'); hear()
        for _ in range(400): os.write(2, b"noise " * 10000 + b"\\n")
        say('{READY}'); hear()
        os.write(2, b"last words\\n\\n"); sys.exit(4)
    """

    with pytest.raises(WorkerError) as failure:
        await converse(body)

    assert failure.value.detail == "exit code 4: last words"


async def test_cancelling_kills_the_worker() -> None:
    """A conversation that is cancelled while it waits kills and reaps the process on its way out."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def hang() -> None:
        async with workers.start({}, command=script("time.sleep(60)")) as worker:
            started.set_result(worker.pid)
            await worker.set_up(SETUP)

    task = asyncio.create_task(hang())
    pid = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not alive(pid)


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (("/nonexistent/python",), "cannot start /nonexistent/python: No such file or directory"),
        (("/",), "cannot start /: Permission denied"),
        (("",), "cannot start Python: Permission denied"),
    ],
)
async def test_an_interpreter_that_cannot_be_started_is_a_failure(command: tuple[str, ...], detail: str) -> None:
    """If the system refuses to start the interpreter, that is spawn_failed with the system's own words."""
    with pytest.raises(WorkerError) as failure:
        async with workers.start({}, command=command):
            pass

    assert (failure.value.reason, failure.value.detail) == (Reason.SPAWN_FAILED, detail)


async def test_the_environment_is_exactly_what_was_given() -> None:
    """A worker sees the environment of its path and nothing of the daemon's."""
    body = f"""
        say('{HELLO}'); hear()
        sys.exit(repr(sorted(os.environ.items())))
    """

    with pytest.raises(WorkerError) as failure:
        async with workers.start({"OPENSSL_ia32cap": "~0x1"}, command=script(body)) as worker:
            await worker.set_up(SETUP)

    # LC_CTYPE is Python's own doing (PEP 538): it coerces the C locale before any of our code runs.
    assert "('OPENSSL_ia32cap', '~0x1')" in failure.value.detail
    assert os.environ.get("PATH", "?") not in failure.value.detail


async def test_the_real_worker_starts_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own worker is found whatever the working directory and the user's PYTHON* settings are."""
    (tmp_path / "json.py").write_text("raise SystemExit('a stray module was imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async with workers.start(dict(os.environ)) as worker:
        ready = await worker.set_up(SETUP)

    assert ready.library != Library(name="")
