"""Schedule: the grid by tables, then short real schedules with intervals of tens of milliseconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType

import apscheduler.schedulers.base
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter.model import Exemption, Failure, Host, Lane, Measurement, NotApplicable, Outcome, Run, Snapshot
from aes_exporter.schedule import Grid, GridTrigger, Schedule
from aes_exporter.vocabulary import Library, Reason

HARDWARE = Lane(engine="libcrypto", path="hardware")
SOFTWARE = Lane(engine="libcrypto", path="software")
MEASURED = Measurement(library=Library(name="OpenSSL 3.0.19"), cpu_flags=("aes",), figures=())
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

Measure = Callable[[bool], Awaitable[Run]]


def snapshot(interval: float) -> Snapshot:
    return Snapshot(host=Host(architecture="x86_64"), lanes=(HARDWARE, SOFTWARE), interval_seconds=interval)


def run_of(hardware: Outcome = MEASURED, software: Outcome = MEASURED) -> Run:
    return Run(
        started=1_700_000_000.0,
        duration_seconds=3.5,
        cpu_seconds=3.0,
        rounds=80,
        cpu=0,
        outcomes={HARDWARE: hardware, SOFTWARE: software},
    )


class Recorder:
    """A `measure` that takes `seconds` and remembers when it began, with which argument, and how many ran at once."""

    def __init__(self, *seconds: float, runs: tuple[Run | Exception, ...] = ()) -> None:
        self.seconds = list(seconds)
        self.runs = list(runs)
        self.began: list[float] = []
        self.firsts: list[bool] = []
        self.active = 0
        self.most_active = 0
        self.cleaned_up = 0

    def slots(self, origin: float, interval: float) -> int:
        """How many slots there were up to that of the latest run."""
        return self.slots_of_runs(origin, interval)[-1] + 1

    def slots_of_runs(self, origin: float, interval: float, phase: float = 1.0) -> list[int]:
        """The number of the slot in which each run began."""
        grid = Grid(origin=origin, interval=interval, phase=phase)
        return [grid.due(start) - 1 for start in self.began]

    async def __call__(self, first: bool) -> Run:
        self.began.append(time.monotonic())
        self.firsts.append(first)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            await asyncio.sleep(self.seconds.pop(0) if self.seconds else 0)
            result = self.runs.pop(0) if self.runs else run_of()
            if isinstance(result, Exception):
                raise result
            return result
        finally:
            await asyncio.sleep(0.005)
            self.active -= 1
            self.cleaned_up += 1


@asynccontextmanager
async def running(
    measure: Measure,
    *,
    interval: float = 0.1,
    phase: float = 0.0,
    monotonic: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Schedule]:
    schedule = Schedule(snapshot(interval), measure, monotonic=monotonic, wall=wall, phase=lambda: phase)
    schedule.start()
    try:
        yield schedule
    finally:
        await schedule.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the conditions belong to objects that know no events
            await asyncio.sleep(0.001)


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.levelno == level and not hasattr(record, "state")
    ]


class TestGrid:
    @pytest.mark.parametrize(
        ("now", "due"),
        [(100, 1), (102.4, 1), (102.5, 2), (102.6, 2), (112.4, 2), (112.5, 3), (1002.5, 92)],
    )
    def test_counts_the_slots_that_are_due(self, now: float, due: int) -> None:
        """The first slot is due at the origin, the second after the phase, and later ones every interval."""
        assert Grid(origin=100.0, interval=10.0, phase=0.25).due(now) == due

    @given(
        origin=st.floats(0, 1e7),
        interval=st.floats(1e-2, 1e5),
        phase=st.floats(1e-6, 1.0),
        number=st.integers(0, 100_000),
    )
    def test_agrees_with_itself(self, origin: float, interval: float, phase: float, number: int) -> None:
        """At the very instant of a slot that slot is due, whatever the rounding."""
        grid = Grid(origin=origin, interval=interval, phase=phase)
        assert grid.due(grid.slot(number)) >= number + 1

    def test_does_not_drift(self) -> None:
        """A year of five-minute slots keeps the phase to the microsecond."""
        grid = Grid(origin=1000.0, interval=300.0, phase=1 / 3)
        slots = 365 * 288
        assert grid.slot(1 + slots) - grid.slot(1) == pytest.approx(slots * 300.0, abs=1e-6)


class TestTrigger:
    @pytest.mark.parametrize(
        ("previous", "monotonic", "wait"),
        [
            (None, 100.0, 0.0),
            (NOON, 100.0, 2.5),
            (NOON, 102.5, 10.0),
            (NOON, 105.0, 7.5),
            (NOON, 142.0, 0.5),
            (NOON - timedelta(hours=1), 105.0, 7.5),
            (NOON + timedelta(hours=1), 105.0, 7.5),
        ],
        ids=[
            "first fire at once",
            "second at the phase",
            "third an interval later",
            "late",
            "very late",
            "clock set forward",
            "clock set back",
        ],
    )
    def test_next_fire_time(self, previous: datetime | None, monotonic: float, wait: float) -> None:
        """The next fire is as far from now as the next slot on the monotonic clock, whatever the wall clock did."""
        trigger = GridTrigger(Grid(origin=100.0, interval=10.0, phase=0.25), lambda: monotonic)
        assert trigger.get_next_fire_time(previous, NOON) == NOON + timedelta(seconds=wait)


class TestTiming:
    async def test_first_run_at_once(self) -> None:
        """The first run starts without waiting for an interval, and is the only one told to be the first."""
        measure = Recorder()
        began = time.monotonic()
        async with running(measure) as schedule:
            await until(lambda: schedule.snapshot.runs == 3)
        assert measure.began[0] - began < 0.1
        assert measure.firsts == [True, False, False]

    async def test_keeps_the_phase(self) -> None:
        """The second run starts at the phase of the interval, and the following ones keep it."""
        measure = Recorder()
        began = time.monotonic()
        async with running(measure, interval=0.2, phase=0.5) as schedule:
            await until(lambda: schedule.snapshot.runs == 4)
        assert measure.slots_of_runs(began, 0.2, 0.5) == [0, 1, 2, 3]

    async def test_never_overlaps_and_counts_what_it_skips(self) -> None:
        """A run longer than two intervals holds back the runs due meanwhile, and each of them is counted."""
        measure = Recorder(0.0, 1.25)
        async with running(measure, interval=0.5) as schedule:
            origin = schedule._grid.origin
            await until(lambda: schedule.snapshot.runs == 3)
            skipped = schedule.snapshot.runs_skipped
        assert measure.most_active == 1
        assert skipped == measure.slots(origin, 0.5) - 3 >= 2

    async def test_counts_skips_while_a_run_hangs(self) -> None:
        """Skipped runs show as they are skipped, not only once the run that is in their way has ended."""
        async with running(Recorder(60)) as schedule:
            await until(lambda: schedule.snapshot.runs_skipped == 2)
            assert schedule.snapshot.in_progress
            assert schedule.snapshot.runs == 0

    async def test_counts_skips_of_a_stopped_process(self) -> None:
        """Slots that passed while the process itself stood still are counted, and one run makes up for them."""
        measure = Recorder()
        async with running(measure, interval=0.5) as schedule:
            origin = schedule._grid.origin
            await until(lambda: schedule.snapshot.runs == 2)
            time.sleep(1.75)  # noqa: ASYNC251  # stopping the event loop is the point
            await until(lambda: schedule.snapshot.runs == 3)
            assert schedule.snapshot.runs_skipped == measure.slots(origin, 0.5) - 3 >= 2

    async def test_phase_inside_the_first_run_is_no_skip(self) -> None:
        """When the random phase falls into the first run, the schedule begins an interval later without a skip."""
        measure = Recorder(0.06)
        async with running(measure, interval=0.2, phase=0.1) as schedule:
            await until(lambda: schedule.snapshot.runs == 2)
            assert schedule.snapshot.runs_skipped == 0
        assert measure.began[1] - measure.began[0] >= 0.21


class Clock:
    """A wall clock that can be set, seen by the Schedule and by APScheduler alike."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step = 0.0
        clock = self

        class Settable(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Settable:
                return cls.fromtimestamp(clock(), tz)

        monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Settable)

    def __call__(self) -> float:
        return time.time() + self.step


class TestClockSteps:
    @pytest.mark.parametrize("step", [-3600.0, 3600.0], ids=["back", "forward"])
    async def test_a_step_changes_nothing(self, step: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wall clock set by an hour neither silences the schedule nor adds, drops or moves a run."""
        clock = Clock(monkeypatch)
        measure = Recorder()
        began = time.monotonic()
        async with running(measure, interval=0.2, wall=clock) as schedule:
            await until(lambda: schedule.snapshot.runs == 2)
            clock.step = step
            await until(lambda: schedule.snapshot.runs == 5)
            assert schedule.snapshot.runs_skipped == 0
        assert measure.slots_of_runs(began, 0.2) == [0, 1, 2, 3, 4]

    async def test_the_watchdog_itself_starts_no_run(self) -> None:
        """A monotonic clock that stands still means no run, however often timers fire."""
        measure = Recorder()
        async with running(measure, interval=0.02, monotonic=lambda: 5.0) as schedule:
            await asyncio.sleep(0.1)
            assert schedule.snapshot.runs == 1
            assert schedule.snapshot.runs_skipped == 0


class TestStop:
    async def test_cancels_a_run_and_waits_for_its_clean_up(self) -> None:
        """Stopping during a run returns only after the run has cleaned up, and no run counts as ended."""
        measure = Recorder(60)
        async with running(measure) as schedule:
            await until(lambda: measure.active == 1)
            await schedule.stop()
            assert measure.cleaned_up == 1
            assert not schedule.snapshot.in_progress
            assert schedule.snapshot.runs == 0

    async def test_leaves_nothing_behind(self, caplog: pytest.LogCaptureFixture) -> None:
        """After a stop there is no task left, no run starts any more, and nothing was logged about it."""
        measure = Recorder(60)
        async with running(measure, interval=0.02):
            await until(lambda: measure.active == 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await asyncio.sleep(0.06)
        assert len(measure.began) == 1
        assert not caplog.records

    async def test_may_be_called_at_any_time(self) -> None:
        """Stopping twice, or what was never started, is no error."""
        schedule = Schedule(snapshot(60), Recorder())
        await schedule.stop()
        schedule.start()
        await schedule.stop()
        await schedule.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}


class TestState:
    async def test_ready_once_a_run_ended(self) -> None:
        """Ready from the end of the first run on, and the Snapshot tells of a run under way."""
        async with running(Recorder(0.02), interval=60) as schedule:
            await until(lambda: schedule.snapshot.in_progress)
            assert not schedule.ready()
            await until(schedule.ready)
            assert not schedule.snapshot.in_progress
            assert schedule.snapshot.run == run_of()

    @pytest.mark.parametrize(("elapsed", "healthy"), [(0, True), (30, True), (30.1, False)])
    def test_the_first_run_has_three_intervals(self, elapsed: float, healthy: bool) -> None:
        """Before the first run has ended the daemon counts as healthy for three intervals, not for ever."""
        now = 1000.0
        schedule = Schedule(snapshot(10), Recorder(), monotonic=lambda: now)
        now += elapsed
        assert schedule.healthy() is healthy

    @pytest.mark.parametrize(("elapsed", "seconds"), [(0.0, 2.5), (2.0, 0.5), (2.5, 10.0), (13.0, 9.5)])
    def test_seconds_to_next(self, elapsed: float, seconds: float) -> None:
        """The next run is due at the next slot of the grid, which is later than now even at a slot itself."""
        clock = iter((100.0, 100.0 + elapsed))
        schedule = Schedule(snapshot(10.0), Recorder(), monotonic=lambda: next(clock), phase=lambda: 0.25)

        assert schedule.seconds_to_next() == seconds

    async def test_healthy_for_three_intervals_after_a_run(self) -> None:
        """Health lasts three intervals from the end of a run, not from its beginning, by the monotonic clock."""
        now = 1000.0

        async def measure(first: bool) -> Run:
            nonlocal now
            now += 5
            return run_of()

        async with running(measure, interval=10, monotonic=lambda: now) as schedule:
            await until(schedule.ready)
            now += 30
            assert schedule.healthy()
            now += 0.1
            assert not schedule.healthy()

    async def test_replace_host(self) -> None:
        """Newer knowledge of the host appears in the Snapshot without touching anything else, even during a run."""
        host = Host(architecture="x86_64", brand="A CPU")
        async with running(Recorder(0.02), interval=60) as schedule:
            await until(lambda: schedule.snapshot.in_progress)
            schedule.replace_host(host)
            assert schedule.snapshot.in_progress
            await until(schedule.ready)
            assert schedule.snapshot.host == host
            assert schedule.snapshot.runs == 1


class TestBrokenRuns:
    async def test_a_bug_is_a_failed_run(self, caplog: pytest.LogCaptureFixture) -> None:
        """A run that raises counts as failed in every lane, is logged with its traceback, and the schedule goes on."""
        measure = Recorder(runs=(ValueError("no\n such  thing"),))
        async with running(measure) as schedule:
            await until(schedule.ready)
            broken = schedule.snapshot
            await until(lambda: schedule.snapshot.runs == 2)
        assert broken.run is not None
        failure = Failure(reason=Reason.CRASH, detail="ValueError: no such thing")
        assert broken.run.outcomes == MappingProxyType({HARDWARE: failure, SOFTWARE: failure})
        assert (broken.runs, broken.runs_failed, broken.in_progress) == (1, 1, False)
        assert broken.failures == {(HARDWARE, Reason.CRASH): 1, (SOFTWARE, Reason.CRASH): 1}
        assert broken.run.started == pytest.approx(time.time(), abs=5)
        [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert error.exc_info
        assert schedule.snapshot.runs_failed == 1

    async def test_a_lane_that_does_not_apply_does_not_fail(self) -> None:
        """A broken run leaves a lane out of the failures that an earlier run found not to apply to this host."""
        exempt = NotApplicable(reason=Exemption.NO_HARDWARE)
        measure = Recorder(runs=(run_of(hardware=exempt), ValueError()))
        async with running(measure) as schedule:
            await until(lambda: schedule.snapshot.runs == 2)
            assert schedule.snapshot.run
            assert schedule.snapshot.run.outcomes[HARDWARE] == exempt
            assert schedule.snapshot.failures == {(SOFTWARE, Reason.CRASH): 1}


class TestLog:
    async def test_one_line_a_run(self, caplog: pytest.LogCaptureFixture) -> None:
        """A run that changes nothing leaves exactly one line, with what it took; APScheduler adds none."""
        caplog.set_level(logging.DEBUG)
        async with running(Recorder()) as schedule:
            await until(lambda: schedule.snapshot.runs == 3)
        records = [r for r in caplog.records if r.name != "asyncio" and not hasattr(r, "state")]
        assert [record.getMessage() for record in records] == ["run ended"] * 3
        fields = ("duration_seconds", "cpu_seconds", "rounds", "failures")
        assert [getattr(records[0], field) for field in fields] == [3.5, 3.0, 80, ""]

    async def test_a_lane_fails_and_recovers(self, caplog: pytest.LogCaptureFixture) -> None:
        """A failure is told when a lane enters it, when its reason changes and when it is over, not in between."""
        caplog.set_level(logging.INFO)
        timeout = run_of(software=Failure(reason=Reason.TIMEOUT, detail="no reply within 10 s"))
        crash = run_of(software=Failure(reason=Reason.CRASH, detail="exit code 1"))
        async with running(Recorder(runs=(timeout, timeout, crash, run_of()))) as schedule:
            await until(lambda: schedule.snapshot.runs == 5)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        fields = ("engine", "path", "reason", "detail")
        assert [[getattr(record, field) for field in fields] for record in warnings] == [
            ["libcrypto", "software", "timeout", "no reply within 10 s"],
            ["libcrypto", "software", "crash", "exit code 1"],
        ]
        assert messages(caplog, logging.INFO) == ["run ended"] * 4 + ["lane recovered", "run ended"]
