"""The log lines about runs: one for each run that ended, and one for each lane or engine whose state changed with it.

The snapshots before and after in, lines out; what they look like is the business of logs.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from aes_exporter.cost import HEADLINE
from aes_exporter.explanation import explain
from aes_exporter.model import Run, Snapshot
from aes_exporter.state import State, states

_log = logging.getLogger(__name__)


def report(before: Snapshot, after: Snapshot) -> None:
    """Log that the run in `after` ended, with all that one line can say of it, and what changed since `before`."""
    if after.run is None:
        return
    _log.info("run ended", extra=dict(_facts(after.run)))
    _report_failures(before.run, after.run)
    _report_states(before, after, after.run)


def _report_failures(previous: Run | None, run: Run) -> None:
    before = dict(previous.failures()) if previous else {}
    failures = dict(run.failures())
    for lane, failure in failures.items():
        if lane not in before or before[lane].reason != failure.reason:
            facts = {"reason": failure.reason.value, "detail": failure.detail}
            _log.warning("lane failed", extra={"engine": lane.engine, "path": lane.path, **facts})
    for lane in before.keys() - failures.keys():
        _log.info("lane recovered", extra={"engine": lane.engine, "path": lane.path})


def _report_states(before: Snapshot, after: Snapshot, run: Run) -> None:
    known = states(before.run, before.host) if before.run else {}
    for engine, state in states(run, after.host).items():
        if state is not known.get(engine):
            explanation = explain(state, engine, run, after.host)
            level = logging.INFO if state is State.ACCELERATED else logging.WARNING
            facts = {"engine": engine, "state": state.value, "advice": explanation.advice}
            _log.log(level, explanation.summary, extra=facts)


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
