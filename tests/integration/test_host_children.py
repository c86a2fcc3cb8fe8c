"""One-shot children of the host's rooms, as real processes that behave and misbehave."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from aes_exporter.host import child, complete, pycpuinfo
from aes_exporter.model import Host
from tests.processes import alive, children, descriptors

UNKNOWN = Host(architecture="x86_64")


async def test_py_cpuinfo_names_this_cpu(tmp_path: Path) -> None:
    """Asked in a child, the real py-cpuinfo fills in what is missing, in whatever words it has for this CPU."""
    found = await pycpuinfo.complete(UNKNOWN, root=tmp_path)

    assert found.brand or found.vendor
    assert found.flags is None
    assert not children(os.getpid())


async def test_without_a_path_it_answers_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """py-cpuinfo finds nothing without PATH, so its child gets the system's default one."""
    monkeypatch.delenv("PATH")

    found = await pycpuinfo.complete(UNKNOWN, root=tmp_path)

    assert found.brand or found.vendor


async def test_completing_keeps_what_is_known() -> None:
    """What the files told already is not asked again."""
    known = Host(architecture="x86_64", brand="A CPU", vendor="A vendor", hypervisor="Xen")

    found = await complete(known)

    assert (found.brand, found.vendor, found.hypervisor) == ("A CPU", "A vendor", "Xen")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print('well')", (0, b"well\n")),
        ("import sys; sys.exit(3)", (3, b"")),
        ("import os; os.kill(os.getpid(), 9)", (-9, b"")),
        ("import os\nfor _ in range(100): os.write(2, b'x' * 65536)", (0, b"")),
    ],
)
async def test_a_child_ends_with_its_code_and_output(code: str, outcome: tuple[int, bytes]) -> None:
    """Exit code or signal and output come back whatever goes to standard error, and nothing is left."""
    before = descriptors()

    assert await child.run(code) == outcome
    assert descriptors() == before


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import time; time.sleep(60)", TimeoutError),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", ValueError),
        ("import os, time\nif os.fork() == 0: time.sleep(60)", TimeoutError),
    ],
    ids=["hangs", "floods", "leaves a grandchild that holds the pipe"],
)
async def test_a_child_that_misbehaves_is_ended(
    monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception]
) -> None:
    """Past its deadline or its bound a child is killed with all that it started."""
    monkeypatch.setattr(child, "_DEADLINE", 1.0)
    before = descriptors()

    with pytest.raises(error):
        await child.run(code)

    assert descriptors() == before
    assert not children(os.getpid())


async def test_cancelling_kills_the_child() -> None:
    """A cancelled question leaves no process behind."""
    task = asyncio.create_task(child.run("import time; time.sleep(60)"))
    while not (started := children(os.getpid())):  # noqa: ASYNC110 (nothing tells of another process's start)
        await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert not any(alive(pid) for pid in started)


async def test_an_interpreter_that_is_gone_costs_the_answer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no child can be started the host stays as it was."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")

    assert await pycpuinfo.complete(UNKNOWN, root=tmp_path) is UNKNOWN
