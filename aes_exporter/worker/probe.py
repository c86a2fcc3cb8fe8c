"""The probe: how fast the core issues instructions at this moment, which tells whether anything disturbs it."""

from __future__ import annotations

from ctypes import CDLL

from aes_exporter.worker.measure import calibrate

PROBE_NS = 3_000
"""Enough: a busy sibling thread lengthens the probe by a quarter or more, and reading the clock by one percent."""


class Probe:
    """A fixed number of independent additions; none where the compiled piece is missing, or its code for this CPU.

    A busy sibling thread of the same core takes issue slots away, and with them the speed of short calls.
    """

    def __init__(self, compiled: CDLL | None) -> None:
        self._run = compiled.hotloop_probe if compiled else _none
        self.iterations = calibrate(self._run, PROBE_NS) if self._run(1000) else 0  # one may be too short for the clock

    def __call__(self) -> int:
        """Return how many nanoseconds the additions take now; 0 if there are none."""
        return int(self._run(self.iterations))


def _none(_iterations: int) -> int:
    return 0
