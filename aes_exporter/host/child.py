"""One-shot Python children, for questions that the daemon must not ask in its own process: code in, output out."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import cast

_LIMIT = 64 << 10  # bytes
_DEADLINE = 10.0  # seconds; the slowest question, py-cpuinfo's, takes 1.3 on a fast CPU


async def run(code: str, *arguments: str) -> tuple[int, bytes]:
    """Run Python code in a child and return its exit code, -N for signal N, and what it printed.

    Raises OSError if it cannot be started, TimeoutError past ten seconds, ValueError for more than 64 KiB. The child
    and all that it started are dead on every way out, being cancelled included.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-c", code, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_DEADLINE):
            output = await _output(process)
            return await process.wait(), output
    finally:
        await _end(process)


def _environment() -> dict[str, str]:
    """Without PATH py-cpuinfo finds nothing at all; without LD_LIBRARY_PATH some Pythons do not start."""
    inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **inherited}


async def _output(process: asyncio.subprocess.Process) -> bytes:
    try:
        await _stdout(process).readexactly(_LIMIT)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise ValueError(f"output of {_LIMIT} bytes or more")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill and reap the child with all that it started, which is a session of its own and may outlive it."""
    if process.returncode is None or not _stdout(process).at_eof():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    return cast(asyncio.StreamReader, process.stdout)  # not None, because a pipe was asked for
