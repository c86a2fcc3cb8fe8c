"""When runs happen, and the holder of the current Snapshot.

In: a coroutine function that performs one run, the interval, clocks. Out: a new Snapshot whenever something happened,
and log lines about runs. It knows neither how a run is made nor how a Snapshot is shown.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from aes_exporter import journal
from aes_exporter.model import Failure, Host, NotApplicable, Run, Snapshot
from aes_exporter.vocabulary import Reason

_log = logging.getLogger(__name__)

_WATCHDOG_SECONDS = 1.0
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The slots in which a run is due, in seconds of the monotonic clock.

    Slot 0 is `origin`, slot 1 comes `phase` intervals later (0 < phase <= 1), and each further one after an `interval`.
    Every slot is computed from the origin, so that nothing adds up to a drift.
    """

    origin: float
    interval: float
    phase: float

    def slot(self, number: int) -> float:
        """Return when slot `number` is due."""
        return self.origin + (number - 1 + self.phase) * self.interval if number else self.origin

    def due(self, now: float) -> int:
        """Return how many slots are due by `now`, which is also the number of the first one that is not."""
        count = max(1, math.floor((now - self.origin) / self.interval - self.phase) + 2)
        return count + (self.slot(count) <= now)  # the division may have rounded down


class GridTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires at once, then at every slot of a grid.

    APScheduler goes by the wall clock; a slot is translated to it each time anew, by what is left of the wait.
    """

    def __init__(self, grid: Grid, monotonic: Callable[[], float]) -> None:
        self._grid = grid
        self._monotonic = monotonic

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the wall clock time of the next slot: `now` for the first, later than `now` for all others."""
        if previous_fire_time is None:
            return now
        elapsed = self._monotonic()
        return now + timedelta(seconds=self._grid.slot(self._grid.due(elapsed)) - elapsed)


class Schedule:
    """Performs runs, never two at once, and keeps the Snapshot that scrapes render.

    `measure(first)` performs one run; `first` is true for the very first one only. `monotonic` returns seconds and
    decides everything; `wall` returns Unix time and only dates a run that broke off. `phase` returns the share of an
    interval, 0 <= phase < 1, after which the second run starts; 0 stands for a whole interval.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        measure: Callable[[bool], Awaitable[Run]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        phase: Callable[[], float] = random.random,
    ) -> None:
        self._snapshot = snapshot
        self._measure = measure
        self._monotonic = monotonic
        self._wall = wall
        self._grid = Grid(origin=monotonic(), interval=snapshot.interval_seconds, phase=phase() or 1.0)
        self._settled = 0  # slots that were taken by a run, counted as skipped or forgiven
        self._last_end = self._grid.origin
        self._run: asyncio.Task[None] | None = None
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._job: Any = None
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The latest state."""
        return self._snapshot

    def start(self) -> None:
        """Begin the first run at once, and the schedule with it. Needs a running event loop."""
        logging.getLogger("apscheduler").setLevel(logging.ERROR)  # what it says below that is said here
        self._grid = replace(self._grid, origin=self._monotonic())
        self._last_end = self._grid.origin
        self._job = self._scheduler.add_job(
            self._fire,
            GridTrigger(self._grid, self._monotonic),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )
        self._scheduler.start()
        self._watch()

    async def stop(self) -> None:
        """End the schedule, cancel a run under way and wait until it has cleaned up."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
            self._scheduler.pause()  # its shutdown is a callback of the loop, before which it could still fire
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait({self._run})

    def healthy(self) -> bool:
        """Whether a run ended within the last three intervals; before the first has ended, the start counts as one."""
        return self._monotonic() - self._last_end <= 3 * self._grid.interval

    def ready(self) -> bool:
        """Whether the first run ended."""
        return self._snapshot.runs > 0

    def seconds_to_next(self) -> float:
        """Return in how many seconds the next run is due; it may still be skipped."""
        now = self._monotonic()
        return self._grid.slot(self._grid.due(now)) - now

    def replace_host(self, host: Host) -> None:
        """Publish newer knowledge of the host."""
        self._snapshot = replace(self._snapshot, host=host)

    async def _fire(self) -> None:
        """Start a run for the latest slot that is due, and count those that no run took.

        The run is a task of its own: APScheduler's executor would log its cancellation as an error, and swallow it.
        """
        open_slots = self._grid.due(self._monotonic()) - self._settled
        if open_slots <= 0:
            return  # nothing is due by the monotonic clock; the trigger has computed the next time
        phase_slot_passed = self._settled == 1
        self._settled += open_slots
        if self._run is None:
            self._run = asyncio.create_task(self._perform())
            open_slots -= 1
        elif phase_slot_passed and not self.ready():
            open_slots -= 1  # a random phase may well fall into the first run; nobody missed a run then
        self._snapshot = self._snapshot.skipped(open_slots)

    async def _perform(self) -> None:
        started, since = self._wall(), self._monotonic()
        before = self._snapshot
        self._snapshot = self._snapshot.begun()
        try:
            run = await self._measure(not self.ready())
        except Exception as error:
            _log.exception("run broke off")
            run = self._broken(error, started, self._monotonic() - since)
        finally:
            self._run = None
            self._snapshot = replace(self._snapshot, in_progress=False)
        self._last_end = self._monotonic()
        self._snapshot = self._snapshot.ended(run)
        journal.report(before, self._snapshot)

    def _broken(self, error: Exception, started: float, duration_seconds: float) -> Run:
        """Return the record of a run of which nothing is known but that it broke off."""
        failure = Failure(reason=Reason.CRASH, detail=" ".join(f"{type(error).__name__}: {error}".split()))
        known = self._snapshot.run.outcomes if self._snapshot.run else {}
        return Run(
            started=started,
            duration_seconds=duration_seconds,
            cpu_seconds=0.0,
            rounds=0,
            cpu=None,
            outcomes={
                lane: outcome if isinstance(outcome := known.get(lane), NotApplicable) else failure
                for lane in self._snapshot.lanes
            },
        )

    def _watch(self) -> None:
        """Let the job fire if a slot is overdue: a wall clock that was set back would silence it for as long."""
        period = min(_WATCHDOG_SECONDS, self._grid.interval)
        self._watchdog = asyncio.get_running_loop().call_later(period, self._watch)
        if self._monotonic() >= self._grid.slot(self._settled):
            self._job.modify(next_run_time=_LONG_AGO)
