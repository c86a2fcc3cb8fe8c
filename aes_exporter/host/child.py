"""One-shot Python children, for questions that the daemon must not ask in its own process: code in, output out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from aes_exporter import offspring

_LIMIT = 64 << 10  # bytes
_DEADLINE = 10.0  # seconds; the slowest question, py-cpuinfo's, takes 1.3 on a fast CPU


async def run(code: str, *arguments: str) -> tuple[int, bytes]:
    """Run Python code in a child and return its exit code, -N for signal N, and what it printed.

    Raises OSError if it cannot be started, TimeoutError past ten seconds, ValueError for more than 64 KiB. The child
    and all that it started are dead on every way out, being cancelled included.
    """
    command = (sys.executable, "-I", "-c", code, *arguments)
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    async with offspring.start(command, _environment(), limit=_LIMIT, **quiet) as child, asyncio.timeout(_DEADLINE):
        output = await _output(child.stdout)
        return await child.wait(), output


def _environment() -> dict[str, str]:
    """Without PATH py-cpuinfo finds nothing at all; without LD_LIBRARY_PATH some Pythons do not start."""
    inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **inherited}


async def _output(stdout: asyncio.StreamReader) -> bytes:
    try:
        await stdout.readexactly(_LIMIT)
    except asyncio.IncompleteReadError as end:
        return end.partial
    raise ValueError(f"output of {_LIMIT} bytes or more")
