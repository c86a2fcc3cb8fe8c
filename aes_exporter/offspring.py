"""Child processes: started with pipes, read and written in the event loop, ended for certain.

A command and an environment in, a Child out. asyncio's own subprocesses ask for a thread or a descriptor after the
fork, to learn of the end; refused that, they lose the child, which lives on. So the end is polled for here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

_POLL_SECONDS = 0.005


class Child:
    """A process, and what it prints. Obtain one from `start`."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        self.stdout = asyncio.StreamReader(limit)
        self.stderr = asyncio.StreamReader(limit)
        self._process = process
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    def write(self, data: bytes) -> None:
        """Send data to its standard input. Whether it arrives is not told: a child that is gone says why elsewhere."""
        cast(asyncio.WriteTransport, self._stdin).write(data)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code, -N for signal N."""
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 (see above)
            await asyncio.sleep(_POLL_SECONDS)
        return code

    async def end(self) -> None:
        """Kill the process with all of its session unless it has ended, reap it and close its pipes."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.abort()
        for output in self._outputs:
            output.close()
        for pipe in filter(None, (self._process.stdin, self._process.stdout, self._process.stderr)):
            pipe.close()

    async def connect(self) -> None:
        """Hand the pipes to the event loop."""
        loop = asyncio.get_running_loop()
        if self._process.stdin:
            self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)
        for reader, pipe in ((self.stdout, self._process.stdout), (self.stderr, self._process.stderr)):
            if pipe:
                transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
                self._outputs.append(transport)


@asynccontextmanager
async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    limit: int,
    stdin: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> AsyncIterator[Child]:
    """Start a program with exactly this environment; it is dead and reaped on every way out.

    `limit` is for a line of its output, in bytes. It gets a session of its own, so that a terminal's Ctrl-C reaches the
    daemon only. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(  # noqa: ASYNC220 (returns once the program has started; asyncio does the same)
        command,
        env=dict(environment),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        bufsize=0,
        cwd=os.sep,
        start_new_session=True,
    )
    child = Child(process, limit)
    try:
        await child.connect()
        yield child
    finally:
        await child.end()
