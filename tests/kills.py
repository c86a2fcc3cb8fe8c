"""`python -m tests.kills` kills what writes a file, at random moments, a number of times.

What writes is a fork of this process, which has imported everything already, so that the moments fall into the work
itself. After each kill a line is printed, in JSON: whether the fork was still alive, and what the file holds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aes_exporter import cli, exposition, host, report, rounds  # noqa: F401  before the forks


def forked(action: Callable[[], object]) -> int:
    """Return the process number of a fork that does something and ends."""
    child = os.fork()
    if not child:
        action()
        os._exit(0)
    return child


def repeat(action: Callable[[], object], file: Path, times: int) -> None:
    """Let a fork finish once, to know how long that takes; then kill others within a little more than that."""
    moments = random.Random(7)
    began = time.monotonic()
    os.waitpid(forked(action), 0)
    usual = time.monotonic() - began
    for _ in range(times):
        child = forked(action)
        time.sleep(moments.uniform(0, 1.2) * usual)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.WIFSIGNALED(status), file.read_text()]), flush=True)


def replace_often(file: Path) -> None:
    """Replace the file by other content, again and again."""
    for _ in range(3):
        for letter in (b"a", b"b"):
            report.write(file, letter * 200_000)


def main(what: str, times: str, file: str, *flags: str) -> None:
    """Kill "bench", with these flags, or "write"."""
    bench: Sequence[str] = ("bench", "--format=prometheus", f"--output={file}", *flags)
    actions = {"bench": lambda: cli.run(bench, os.environ), "write": lambda: replace_often(Path(file))}
    repeat(actions[what], Path(file), int(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
