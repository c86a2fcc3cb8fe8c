"""The log lines about runs: one for each run that ended, one when a lane begins to fail, one when it recovers.

The runs before and after in, lines out; what they look like is the business of logs.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from aes_exporter.model import Cell, Run

_log = logging.getLogger(__name__)

HEADLINE = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=8192)
"""The cell that stands for a lane where there is room for one figure."""


def report(previous: Run | None, run: Run) -> None:
    """Log that a run ended, with all that one line can say of it, and each lane whose state changed with it."""
    _log.info("run ended", extra=dict(_facts(run)))
    before = dict(previous.failures()) if previous else {}
    failures = dict(run.failures())
    for lane, failure in failures.items():
        if lane not in before or before[lane].reason != failure.reason:
            facts = {"reason": failure.reason.value, "detail": failure.detail}
            _log.warning("lane failed", extra={"engine": lane.engine, "path": lane.path, **facts})
    for lane in before.keys() - failures.keys():
        _log.info("lane recovered", extra={"engine": lane.engine, "path": lane.path})


def _facts(run: Run) -> Iterator[tuple[str, object]]:
    yield "duration_seconds", round(run.duration_seconds, 3)
    yield "cpu_seconds", round(run.cpu_seconds, 3)
    yield "rounds", run.rounds
    for lane, measurement in run.measured():
        for figure in measurement.figures:
            if figure.cell == HEADLINE:
                yield f"{lane.engine}_{lane.path}_bytes_per_second", round(figure.best)
    for speedup in run.speedups():
        if speedup.cell == HEADLINE:
            yield f"{speedup.engine}_speedup_over_{speedup.baseline}", round(speedup.ratio, 2)
    yield "failures", ",".join(f"{lane}:{failure.reason}" for lane, failure in run.failures())
