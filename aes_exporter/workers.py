"""The daemon's side of the wall: start a worker, ask it with a deadline, decode what it says, end it for certain.

A worker that does anything else than answer in time and in shape is a WorkerError with one of METRICS' reasons. Nothing
here knows what is measured or why.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from aes_exporter import __version__, offspring
from aes_exporter.offspring import Child
from aes_exporter.vocabulary import Reason
from aes_exporter.worker import messages
from aes_exporter.worker.messages import Message, MessageError, Ready, Refusal, Setup, Slices, Turn

REPLY_SECONDS = 10.0
_STDERR_TAIL = 4096

# `-I` keeps the user's PYTHON* settings and the working directory out, but also a source checkout or a --user install,
# so the package's own parent directory goes in first. `-S` saves the search for site packages, which one engine needs.
_ROOT = str(Path(__file__).resolve().parent.parent)
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from aes_exporter.worker.__main__ import main; main()"
COMMAND = (sys.executable, "-I", "-S", "-c", _BOOT, _ROOT)

_Reply = TypeVar("_Reply")


class WorkerError(Exception):
    """A worker that failed, with the reason METRICS gives it and one line for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Worker:
    """A living worker process. Obtain one from `start`."""

    def __init__(self, child: Child, reply_seconds: float) -> None:
        self._child = child
        self._reply_seconds = reply_seconds
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._drain_stderr())

    @property
    def pid(self) -> int:
        """Process number, for logs and tests."""
        return self._child.pid

    async def set_up(self, setup: Setup) -> Ready:
        """Greet the worker and have it prepare its cells. Raises WorkerError."""
        greeting = await self._read(messages.hello)
        if greeting.version != __version__:
            detail = f"the worker on disk is {greeting.version}, this daemon {__version__}: restart it"
            raise WorkerError(Reason.VERSION_MISMATCH, detail)
        return _accepted(await self._ask(setup, messages.ready))

    async def take_turn(self, turn: Turn, *, cells: int) -> Slices:
        """Return one slice of each of the worker's cells and of the chains asked for. Raises WorkerError."""
        chains = len(turn.chains)
        return _accepted(await self._ask(turn, lambda line: messages.slices(line, cells=cells, chains=chains)))

    async def end(self) -> None:
        """Kill the process unless it has ended, and reap it."""
        await self._child.end()
        self._drain.cancel()
        with suppress(asyncio.CancelledError):
            await self._drain

    async def _ask(self, message: Message, decode: Callable[[bytes], _Reply]) -> _Reply:
        self._child.write(messages.encode(message))
        return await self._read(decode)

    async def _read(self, decode: Callable[[bytes], _Reply]) -> _Reply:
        try:
            async with asyncio.timeout(self._reply_seconds):
                line = await self._child.stdout.readline()
                if not line.endswith(b"\n"):
                    raise await self._obituary(line)
        except TimeoutError:
            raise WorkerError(
                Reason.TIMEOUT, f"no reply within {self._reply_seconds:g} s{self._last_words()}"
            ) from None
        except ValueError:  # from readline
            raise WorkerError(Reason.BAD_REPLY, f"a reply of more than {messages.MAX_LINE} bytes") from None
        try:
            return decode(line)
        except MessageError as error:
            raise WorkerError(Reason.BAD_REPLY, f"{error}{self._last_words()}") from error

    async def _obituary(self, remainder: bytes) -> WorkerError:
        """Return what ended a worker whose output has ended."""
        code = await self._child.wait()
        await self._drain
        if code < 0:
            return WorkerError(Reason.SIGNAL, f"ended by {_signal_name(-code)}{self._last_words()}")
        if code == 0 and remainder:
            return WorkerError(Reason.BAD_REPLY, "the reply ended in the middle of a line")
        return WorkerError(Reason.CRASH, f"exit code {code}{self._last_words()}")

    async def _drain_stderr(self) -> None:
        """Keep reading, so that a worker that floods its standard error never blocks; remember the end of it."""
        while chunk := await self._child.stderr.read(65536):
            self._stderr = (self._stderr + chunk)[-_STDERR_TAIL:]

    def _last_words(self) -> str:
        lines = self._stderr.decode(errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()]
        return f": {words[-1][:200]}" if words else ""


@asynccontextmanager
async def start(
    environment: Mapping[str, str],
    *,
    command: tuple[str, ...] = COMMAND,
    reply_seconds: float = REPLY_SECONDS,
) -> AsyncIterator[Worker]:
    """Start a worker with exactly this environment; it is dead and reaped on every way out. Raises WorkerError."""
    async with AsyncExitStack() as stack:
        try:
            child = await stack.enter_async_context(offspring.start(command, environment, limit=messages.MAX_LINE))
        except OSError as error:
            detail = f"cannot start {command[0] or 'Python'}: {error.strerror}"
            raise WorkerError(Reason.SPAWN_FAILED, detail) from error
        worker = Worker(child, reply_seconds)
        stack.push_async_callback(worker.end)
        yield worker


def _accepted(reply: _Reply | Refusal) -> _Reply:
    if isinstance(reply, Refusal):
        raise WorkerError(reply.reason, reply.detail)
    return reply


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
