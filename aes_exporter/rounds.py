"""One run: open a worker per lane, go round by round through all of them, and make one Run of what came back.

Takes a Plan and a Host. What the answers mean is verdict.py's business; schedules and metrics are nobody's here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

from aes_exporter import __version__, paths, verdict, workers
from aes_exporter.capabilities import parse_words
from aes_exporter.meter import Meter
from aes_exporter.model import (
    MASKED_PATHS,
    Exemption,
    Failure,
    Host,
    Lane,
    Measurement,
    NotApplicable,
    Outcome,
    Plan,
    Reason,
    Run,
)
from aes_exporter.worker.messages import Ready, Setup, Slice, Turn
from aes_exporter.workers import Worker, WorkerError

MIN_ROUNDS = 5
"""Fewer complete rounds than this are no measurement."""

Progress = Callable[[int, int], None]
Start = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Worker]]

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Runner:
    """A lane under way: its worker, what that said of itself, and the slices of each complete round."""

    lane: Lane
    worker: Worker
    ready: Ready
    words: tuple[int, ...] | None
    rounds: list[tuple[Slice, ...]] = field(default_factory=list)


async def measure(plan: Plan, host: Host, *, progress: Progress | None = None, start: Start = workers.start) -> Run:
    """Perform one run. Whatever goes wrong in a lane becomes its outcome; cancelling kills and reaps all workers.

    `progress` is told the rounds done and planned; `start` opens a worker with a given environment.
    """
    started = time.time()
    meter = Meter()
    course = _Course(plan, host, meter)
    async with AsyncExitStack() as stack:
        await course.open_lanes(stack, start)
        await course.go_round(progress or _no_progress)
    outcomes = course.outcomes()
    return Run(
        started=started,
        duration_seconds=meter.wall_seconds,
        cpu_seconds=meter.cpu_seconds,
        rounds=course.rounds,
        cpu=course.cpu,
        outcomes=outcomes,
    )


def _no_progress(_done: int, _planned: int) -> None:
    pass


class _Course:
    """What a run knows while it is under way."""

    def __init__(self, plan: Plan, host: Host, meter: Meter) -> None:
        self._plan = plan
        self._host = host
        self._meter = meter
        self._runners: list[_Runner] = []
        self._fallen: dict[Lane, Outcome] = {}
        self.rounds = 0
        self.cpu: int | None = None

    async def open_lanes(self, stack: AsyncExitStack, start: Start) -> None:
        """Open a worker per lane, in the order of the plan: the first one settles the CPU for all."""
        for lane in self._plan.lanes:
            environment = paths.environment(lane.path, self._host.architecture, os.environ)
            if isinstance(environment, Exemption):
                self._fallen[lane] = NotApplicable(reason=environment)
                continue
            try:
                runner = await self._open(lane, await stack.enter_async_context(start(environment)))
            except WorkerError as error:
                self._fallen[lane] = Failure(reason=error.reason, detail=error.detail)
                continue
            objection = verdict.admission(lane, runner.words, self._host)
            if objection is None:
                self._runners.append(runner)
            else:
                self._fallen[lane] = objection
                await runner.worker.end()

    async def _open(self, lane: Lane, worker: Worker) -> _Runner:
        setup = Setup(
            version=__version__,
            engine=lane.engine,
            libcrypto=self._plan.libcrypto,
            cells=self._plan.cells,
            slice_ns=self._plan.slice_ns,
            nice=self._plan.nice,
            cpu=self._plan.cpu if self.cpu is None else self.cpu,
        )
        ready = await worker.set_up(setup)
        self.cpu = ready.cpu if self.cpu is None else self.cpu
        for note in ready.notes:
            _log.warning("worker could not settle", extra={"engine": lane.engine, "path": lane.path, "detail": note})
        return _Runner(lane=lane, worker=worker, ready=ready, words=parse_words(ready.capabilities))

    async def go_round(self, progress: Progress) -> None:
        """Measure until the plan's rounds are done, its budget is used up, or no lane is left."""
        due = time.monotonic()
        while (
            self._runners and self.rounds < self._plan.rounds and self._meter.wall_seconds < self._plan.budget_seconds
        ):
            await self._round()
            self.rounds += bool(self._runners)
            progress(self.rounds, self._plan.rounds)
            due += self._plan.pause_seconds
            if self.rounds < self._plan.rounds:
                await self._pause(due)

    async def _round(self) -> None:
        """Ask every worker in turn for one slice of each cell, every other round in reverse order."""
        turn = Turn(first=self.rounds % len(self._plan.cells))
        for runner in self._runners[:: -1 if self.rounds % 2 else 1]:
            try:
                reply = await runner.worker.take_turn(turn, cells=len(self._plan.cells))
            except WorkerError as error:
                self._fallen[runner.lane] = Failure(reason=error.reason, detail=error.detail)
                self._runners.remove(runner)
                await runner.worker.end()
            else:
                runner.rounds.append(reply.slices)

    async def _pause(self, due: float) -> None:
        remaining = self._plan.budget_seconds - self._meter.wall_seconds
        seconds = min(due - time.monotonic(), remaining)
        if seconds > 0:
            with self._meter.paused():
                await asyncio.sleep(seconds)

    def outcomes(self) -> Mapping[Lane, Outcome]:
        """Return what came of each lane, in the order of the plan."""
        outcomes = {**self._fallen, **{runner.lane: self._outcome(runner) for runner in self._runners}}
        for runner in self._runners:
            outcome = outcomes[runner.lane]
            if runner.words is None and runner.lane.path in MASKED_PATHS and isinstance(outcome, Measurement):
                outcomes[runner.lane] = verdict.unproven(runner.lane, outcome, outcomes) or outcome
        return {lane: outcomes[lane] for lane in self._plan.lanes}

    def _outcome(self, runner: _Runner) -> Outcome:
        if len(runner.rounds) < MIN_ROUNDS:
            detail = f"only {len(runner.rounds)} of {self._plan.rounds} rounds within {self._plan.budget_seconds:g} s"
            return Failure(reason=Reason.TIMEOUT, detail=detail)
        flags = paths.cpu_flags(runner.lane.path, self._host.architecture, runner.words, self._host.flags)
        figures = verdict.figures(self._plan.cells, runner.rounds)
        return Measurement(library=runner.ready.library, cpu_flags=flags, figures=figures)
