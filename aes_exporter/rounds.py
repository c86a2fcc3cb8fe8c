"""One run: open a worker per lane, go round by round through all of them, and make one Run of what came back.

Takes a Plan and a Host. What the answers mean is verdict.py's business; schedules and metrics are nobody's here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace

from aes_exporter import __version__, paths, verdict, workers
from aes_exporter.capabilities import parse_words
from aes_exporter.host import instructions, pressure
from aes_exporter.implementation import implementation
from aes_exporter.meter import Meter
from aes_exporter.model import (
    MASKED_PATHS,
    Exemption,
    Failure,
    Figure,
    Host,
    Lane,
    Measurement,
    NotApplicable,
    Outcome,
    Plan,
    Run,
    Silicon,
)
from aes_exporter.silicon import silicon
from aes_exporter.vocabulary import Reason
from aes_exporter.worker.messages import Ready, Setup, Slice, Turn
from aes_exporter.workers import Worker, WorkerError

MIN_ROUNDS = 5
"""Fewer complete rounds than this are no measurement."""

Progress = Callable[[int, int], None]
Start = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Worker]]

_NO_HARDWARE = NotApplicable(reason=Exemption.NO_HARDWARE)

_BITS = 64 if sys.maxsize > 1 << 32 else 32  # workers run the same Python

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Runner:
    """A lane under way: its worker, what that said of itself, and the slices of each complete round."""

    lane: Lane
    worker: Worker
    ready: Ready
    words: tuple[int, ...] | None
    rounds: list[tuple[Slice, ...]] = field(default_factory=list)
    chains: dict[str, list[Slice]] = field(default_factory=dict)


async def measure(
    plan: Plan,
    host: Host,
    *,
    progress: Progress | None = None,
    start: Start = workers.start,
    aes_works: Callable[[], Awaitable[bool | None]] = instructions.aes_works,
) -> Run:
    """Perform one run. Whatever goes wrong in a lane becomes its outcome; cancelling kills and reaps all workers.

    `progress` is told the rounds done and planned; `start` opens a worker with a given environment; `aes_works` tries
    an AES instruction, and is asked only where no flag shows them.
    """
    started = time.time()
    meter = Meter()
    before = pressure.read()
    course = _Course(plan, host, meter, start)
    async with AsyncExitStack() as stack:
        await course.open_lanes(stack)
        await course.open_forced_lanes(stack, aes_works)
        await course.go_round(progress or _no_progress)
    steal_ratio, throttled_periods = pressure.between(before, pressure.read())
    return Run(
        started=started,
        duration_seconds=meter.wall_seconds,
        cpu_seconds=meter.cpu_seconds,
        rounds=course.rounds,
        cpu=course.cpu,
        outcomes=course.outcomes(),
        silicon=course.silicon(),
        hidden=course.hidden,
        steal_ratio=steal_ratio,
        throttled_periods=throttled_periods,
    )


def cell_order(round_: int, cells: int) -> tuple[int, int]:
    """Return with which cell a round begins and in what steps it goes on, so that none follows the same one each time.

    What ran before a slice can decide its pace: see docs/method.md.
    """
    steps = [step for step in range(1, cells + 1) if math.gcd(step, cells) == 1]
    return (round_ + round_ // cells) % cells, steps[round_ % len(steps)]


def _no_progress(_done: int, _planned: int) -> None:
    pass


class _Course:
    """What a run knows while it is under way."""

    def __init__(self, plan: Plan, host: Host, meter: Meter, start: Start) -> None:
        self._plan = plan
        self._host = host
        self._meter = meter
        self._start = start
        self._runners: list[_Runner] = []
        self._fallen: dict[Lane, Outcome] = {}
        self._words: dict[str, tuple[int, ...] | None] = {}
        self.rounds = 0
        self.cpu: int | None = None
        self.hidden: bool | None = None

    async def open_lanes(self, stack: AsyncExitStack) -> None:
        """Open a worker per lane, in the order of the plan: the first one settles the CPU for all."""
        for lane in self._plan.lanes:
            if lane.path == "forced":
                self._fallen[lane] = NotApplicable(reason=Exemption.NOT_HIDDEN)
            else:
                await self._open_lane(lane, stack)

    async def open_forced_lanes(self, stack: AsyncExitStack, aes_works: Callable[[], Awaitable[bool | None]]) -> None:
        """Where no flag shows AES instructions that work all the same, measure each engine with the bit set, too."""
        bare = [lane for lane, outcome in self._fallen.items() if outcome == _NO_HARDWARE]
        if bare:
            self.hidden = await aes_works()
        for lane in bare if self.hidden else ():
            forced = Lane(engine=lane.engine, path="forced")
            self._fallen.pop(forced, None)
            await self._open_lane(forced, stack)

    async def _open_lane(self, lane: Lane, stack: AsyncExitStack) -> None:
        words = self._words.get(lane.engine)
        environment = paths.environment(lane.path, self._host.architecture, os.environ, words)
        if isinstance(environment, Exemption):
            self._fallen[lane] = NotApplicable(reason=environment)
            return
        try:
            runner = await self._open(lane, await stack.enter_async_context(self._start(environment)))
        except WorkerError as error:
            self._fallen[lane] = Failure(reason=error.reason, detail=error.detail)
            return
        if lane.path == "hardware":
            self._words[lane.engine] = runner.words
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
        self._hand_out_chains()
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

    def _hand_out_chains(self) -> None:
        """Give the chains to the first libcrypto worker: all of them if it has proven AES, else only the clock."""
        runner = next((runner for runner in self._runners if runner.lane.engine == "libcrypto"), None)
        if runner:
            proven = runner.lane.path not in MASKED_PATHS
            names = [name for name in runner.ready.chains if proven or name == "clock"]
            runner.chains = {name: [] for name in names}

    async def _round(self) -> None:
        """Ask every worker in turn for one slice of each cell, every other round in reverse order."""
        first, step = cell_order(self.rounds, len(self._plan.cells))
        for runner in self._runners[:: -1 if self.rounds % 2 else 1]:
            turn = Turn(first=first, step=step, chains=tuple(runner.chains))
            try:
                reply = await runner.worker.take_turn(turn, cells=len(self._plan.cells))
            except WorkerError as error:
                self._fallen[runner.lane] = Failure(reason=error.reason, detail=error.detail)
                self._runners.remove(runner)
                await runner.worker.end()
            else:
                runner.rounds.append(reply.slices)
                for slices, each in zip(runner.chains.values(), reply.chains, strict=True):
                    slices.append(each)

    async def _pause(self, due: float) -> None:
        remaining = self._plan.budget_seconds - self._meter.wall_seconds
        seconds = min(due - time.monotonic(), remaining)
        if seconds > 0:
            with self._meter.paused():
                await asyncio.sleep(seconds)

    def outcomes(self) -> Mapping[Lane, Outcome]:
        """Return what came of each lane, in the order of the plan, forced lanes that it did not ask for behind it."""
        outcomes = {**self._fallen, **{runner.lane: self._outcome(runner) for runner in self._runners}}
        silicon = self.silicon()
        for runner in self._runners:
            outcome = outcomes[runner.lane]
            if runner.lane.path in MASKED_PATHS and isinstance(outcome, Measurement):
                proven = runner.words is not None
                doubt = verdict.unmasked(runner.lane, outcome, outcomes, silicon, proven=proven)
                outcomes[runner.lane] = doubt or outcome
        return {lane: outcomes[lane] for lane in dict.fromkeys((*self._plan.lanes, *outcomes))}

    def _outcome(self, runner: _Runner) -> Outcome:
        if len(runner.rounds) < MIN_ROUNDS:
            detail = f"only {len(runner.rounds)} of {self._plan.rounds} rounds within {self._plan.budget_seconds:g} s"
            return Failure(reason=Reason.TIMEOUT, detail=detail)
        flags = paths.cpu_flags(runner.lane.path, self._host.architecture, runner.words, self._host.flags)
        figures = tuple(self._named(figure, runner) for figure in verdict.figures(self._plan.cells, runner.rounds))
        return Measurement(
            library=runner.ready.library,
            cpu_flags=flags,
            figures=figures,
            contention_ratio=verdict.contention(runner.rounds),
        )

    def _named(self, figure: Figure, runner: _Runner) -> Figure:
        library, machine = runner.ready.library.name, self._host.architecture
        return replace(figure, implementation=implementation(figure.cell, runner.words, machine, library, bits=_BITS))

    def silicon(self) -> Silicon | None:
        """Return what the chains tell of the CPU, unless their worker fell or there were too few rounds."""
        if self.rounds < MIN_ROUNDS:
            return None
        return next((silicon(runner.chains) for runner in self._runners if runner.chains), None)
