"""What tests need to know of processes, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def alive(pid: int) -> bool:
    """Return whether a process exists, zombies included."""
    return Path(f"/proc/{pid}").exists()


def descriptors(pid: int | None = None) -> int:
    """Return how many descriptors a process has open, this one by default."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))  # noqa: PTH208 (Path.iterdir opens one itself all the same)


def children(pid: int) -> list[int]:
    """Return the process numbers of a process's children."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found
