"""Wall and CPU time of a run: this process's share while it is busy with the run, and that of its reaped children."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import resource
except ImportError:  # not a POSIX system: no workers either, hence no children to count
    resource = None  # type: ignore[assignment]


def _children_seconds() -> float:
    if resource is None:
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Start it by making it. Both figures are in seconds and grow until they are read."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._own = time.process_time()
        self._children = _children_seconds()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave this process's CPU time out: what it does meanwhile is not for the run."""
        before = time.process_time()
        try:
            yield
        finally:
            self._own += time.process_time() - before

    @property
    def wall_seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self._own + _children_seconds() - self._children
