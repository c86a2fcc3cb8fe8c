"""A run's course, with workers played by plain objects: no process, no socket, no sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from aes_exporter import rounds
from aes_exporter.model import Exemption, Failure, Host, Lane, Measurement, NotApplicable, Plan, Run
from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker.messages import Ready, Setup, Slice, Slices, Turn
from aes_exporter.workers import Worker, WorkerError

HARDWARE = Lane(engine="libcrypto", path="hardware")
SOFTWARE = Lane(engine="libcrypto", path="software")
FORCED = Lane(engine="libcrypto", path="forced")
HOST = Host(architecture="x86_64", flags=frozenset({"aes", "ssse3"}))
CELLS = tuple(Cell(algorithm="aes-128-ecb", operation="encrypt", block_size=size) for size in (16, 1024))
WORDS = {
    HARDWARE: "OPENSSL_ia32cap=0x200020000000000",
    SOFTWARE: "OPENSSL_ia32cap=0x20000000000",
    FORCED: "OPENSSL_ia32cap=0x200020200000000",
}
PLAN = Plan(
    lanes=(HARDWARE, SOFTWARE),
    cells=CELLS,
    rounds=6,
    slice_ns=250_000,
    pause_seconds=0.0,
    budget_seconds=60.0,
    nice=0,
    cpu=None,
    libcrypto=None,
)


@dataclass
class Played:
    """A worker on `lane`: `turns` overrides what it does in a given round."""

    lane: Lane
    journal: list[tuple[Lane, object]]
    words: str
    wall_ns: int
    cpu: int | None = 7
    chains: tuple[str, ...] = ()
    turns: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    refusal: WorkerError | None = None

    async def set_up(self, setup: Setup) -> Ready:
        self.journal.append((self.lane, setup))
        if self.refusal:
            raise self.refusal
        library = Library(name="OpenSSL 3.0.19")
        return Ready(library=library, capabilities=self.words, cpu=self.cpu, notes=(), chains=self.chains)

    async def take_turn(self, turn: Turn, *, cells: int) -> Slices:
        count = sum(lane == self.lane and isinstance(entry, Turn) for lane, entry in self.journal)
        self.journal.append((self.lane, turn))
        self.turns.get(count, lambda: None)()
        return Slices(
            slices=(Slice(calls=10, wall_ns=self.wall_ns, cpu_ns=self.wall_ns * 3 // 4),) * cells,
            chains=(Slice(calls=1000, wall_ns=500, cpu_ns=500),) * len(turn.chains),
        )

    async def end(self) -> None:
        self.journal.append((self.lane, "end"))


class Stage:
    """Opens the hardware worker, then the software one, and keeps one journal of both."""

    def __init__(self, *, aes_works: bool | None = False, **changes: dict[str, object]) -> None:
        self._aes_works = aes_works
        self.journal: list[tuple[Lane, object]] = []
        self.environments: list[Mapping[str, str]] = []
        self._players = [
            replace(self._player(lane), **changes.get(lane.path, {}))  # type: ignore[arg-type]
            for lane in (HARDWARE, SOFTWARE, FORCED)
        ]

    def _player(self, lane: Lane) -> Played:
        return Played(lane=lane, journal=self.journal, words=WORDS[lane], wall_ns=4000 if lane == SOFTWARE else 1000)

    @asynccontextmanager
    async def start(self, environment: Mapping[str, str]) -> AsyncIterator[Worker]:
        player = self._players[len(self.environments)]
        self.environments.append(environment)
        try:
            yield cast("Worker", player)
        finally:
            await player.end()

    def turns(self) -> list[tuple[str, int]]:
        return [(lane.path, entry.first) for lane, entry in self.journal if isinstance(entry, Turn)]

    async def run(self, plan: Plan = PLAN, host: Host = HOST) -> Run:
        async def aes_works() -> bool | None:
            return self._aes_works

        return await rounds.measure(plan, host, start=self.start, aes_works=aes_works)


def failing(reason: Reason) -> Callable[[], None]:
    def fail() -> None:
        raise WorkerError(reason, "as told")

    return fail


@pytest.mark.parametrize("cells", [1, 2, 6, 24, 25])
def test_no_cell_always_follows_the_same(cells: int) -> None:
    """Rounds begin with every cell, each reaches all cells, and in 80 rounds every cell has followed many others."""
    predecessors: list[set[int]] = [set() for _ in range(cells)]
    firsts = set()
    for number in range(80):
        first, step = rounds.cell_order(number, cells)
        firsts.add(first)
        assert {(first + index * step) % cells for index in range(cells)} == set(range(cells))
        for cell in range(cells):
            predecessors[cell].add((cell - step) % cells)

    assert firsts == set(range(cells))
    assert all(len(each) >= cells // 3 for each in predecessors)


async def test_workers_alternate_and_cells_rotate() -> None:
    """Every round asks each worker once, the order of workers turns round, and so does the first cell."""
    stage = Stage()

    run = await stage.run()

    assert stage.turns() == [
        ("hardware", 0),
        ("software", 0),
        ("software", 1),
        ("hardware", 1),
        ("hardware", 1),
        ("software", 1),
        ("software", 0),
        ("hardware", 0),
        ("hardware", 0),
        ("software", 0),
        ("software", 1),
        ("hardware", 1),
    ]
    assert run.rounds == 6
    assert [entry for _, entry in stage.journal[-2:]] == ["end", "end"]


async def test_a_run_gives_figures_speedups_and_flags() -> None:
    """Both lanes are measured, the speed-up is their ratio, and the label shows the flags that the words show."""
    run = await Stage().run()

    hardware, software = run.outcomes[HARDWARE], run.outcomes[SOFTWARE]
    assert isinstance(hardware, Measurement)
    assert isinstance(software, Measurement)
    assert [figure.best for figure in hardware.figures] == [160e6, 10240e6]
    assert hardware.cpu_flags == ("aes", "ssse3")
    assert software.cpu_flags == ("ssse3",)
    assert [(speedup.ratio, speedup.baseline, speedup.cpu_flags) for speedup in run.speedups()] == [
        (4.0, "software", ("aes", "ssse3")),
        (4.0, "software", ("aes", "ssse3")),
    ]
    assert not run.failed


async def test_the_first_worker_settles_the_cpu_for_all() -> None:
    """Without a CPU in the plan the first worker stays where it is, and the others are sent there."""
    stage = Stage()

    run = await stage.run()

    assert [entry.cpu for _, entry in stage.journal if isinstance(entry, Setup)] == [None, 7]
    assert run.cpu == 7


async def test_a_cpu_in_the_plan_is_for_every_worker() -> None:
    """A CPU that the user names is asked for in every worker, and not reported where pinning was refused."""
    stage = Stage(hardware={"cpu": None}, software={"cpu": None})

    run = await stage.run(replace(PLAN, cpu=3))

    assert [entry.cpu for _, entry in stage.journal if isinstance(entry, Setup)] == [3, 3]
    assert run.cpu is None


async def test_one_lane_failing_leaves_the_other_whole() -> None:
    """A worker that fails in a round is ended at once and loses its figures; the other lane gets all its rounds."""
    stage = Stage(software={"turns": {2: failing(Reason.SIGNAL)}})

    run = await stage.run()

    assert run.outcomes[SOFTWARE] == Failure(reason=Reason.SIGNAL, detail="as told")
    assert isinstance(run.outcomes[HARDWARE], Measurement)
    assert run.rounds == 6
    assert stage.turns()[-1] == ("hardware", 1)
    assert stage.journal.index((SOFTWARE, "end")) < stage.journal.index((HARDWARE, "end"))
    assert not run.failed
    assert list(run.speedups()) == []


async def test_a_lane_that_cannot_be_set_up_leaves_the_other_whole() -> None:
    """A refusal while setting up is that lane's failure only."""
    stage = Stage(hardware={"refusal": WorkerError(Reason.ENGINE_UNAVAILABLE, "no library")})

    run = await stage.run()

    assert run.outcomes[HARDWARE] == Failure(reason=Reason.ENGINE_UNAVAILABLE, detail="no library")
    assert isinstance(run.outcomes[SOFTWARE], Measurement)


async def test_a_run_that_measured_nothing_failed() -> None:
    """When every lane fails the rounds stop at once and the run says that it failed."""
    broken: dict[str, object] = {"turns": {0: failing(Reason.CRASH)}}
    stage = Stage(hardware=broken, software=broken)

    run = await stage.run()

    assert run.failed
    assert run.rounds == 0
    assert len(stage.turns()) == 2


async def test_an_ineffective_mask_is_a_failure_and_not_measured() -> None:
    """If the software worker's words still show AES, no slice of it is taken and its worker is ended."""
    stage = Stage(software={"words": WORDS[HARDWARE]})

    run = await stage.run()

    outcome = run.outcomes[SOFTWARE]
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.MASK_INEFFECTIVE
    assert {path for path, _ in stage.turns()} == {"hardware"}


async def test_without_words_an_equal_speed_is_an_ineffective_mask() -> None:
    """A library that hides its words and is as fast masked as not gives no figures for the masked path."""
    stage = Stage(hardware={"words": ""}, software={"words": "", "wall_ns": 1100})

    run = await stage.run()

    outcome = run.outcomes[SOFTWARE]
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.MASK_INEFFECTIVE
    assert list(run.speedups()) == []


async def test_a_cpu_without_aes_is_no_failure() -> None:
    """Where words show no AES, the hardware path does not apply and the software path is still measured."""
    stage = Stage(hardware={"words": WORDS[SOFTWARE]})

    run = await stage.run()

    assert run.outcomes[HARDWARE] == NotApplicable(reason=Exemption.NO_HARDWARE)
    assert isinstance(run.outcomes[SOFTWARE], Measurement)
    assert list(run.failures()) == []


async def test_elsewhere_than_on_x86_software_does_not_apply() -> None:
    """On an architecture without a known mask no software worker is started at all."""
    stage = Stage(hardware={"words": ""})

    run = await stage.run(host=Host(architecture="riscv64"))

    assert run.outcomes[SOFTWARE] == NotApplicable(reason=Exemption.MASK_UNSUPPORTED)
    assert isinstance(run.outcomes[HARDWARE], Measurement)
    assert len(stage.environments) == 1


async def test_a_used_up_budget_stops_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the budget ends, the rounds so far are published if they are five; a round is never cut."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def second() -> None:
        now[0] += 1.0

    slow: dict[str, object] = {"turns": dict.fromkeys(range(6), second)}

    enough = await Stage(software=slow).run(replace(PLAN, budget_seconds=4.5))
    now[0] = 0.0
    too_few = await Stage(software=slow).run(replace(PLAN, budget_seconds=3.5))

    assert enough.rounds == 5
    assert isinstance(enough.outcomes[SOFTWARE], Measurement)
    assert too_few.rounds == 4
    assert too_few.outcomes[HARDWARE] == Failure(reason=Reason.TIMEOUT, detail="only 4 of 6 rounds within 3.5 s")


async def test_rounds_start_a_pause_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause counts from start to start, so that a slow round shortens the wait and does not delay the next."""
    now = [0.0]
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))
        now[0] += seconds

    def take() -> None:
        now[0] += 0.1

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)

    await Stage(hardware={"turns": dict.fromkeys(range(6), take)}).run(replace(PLAN, pause_seconds=0.5))

    assert waits == [0.4] * 5


async def test_cancelling_ends_every_worker() -> None:
    """A cancelled run leaves through the workers' own clean-up, both of them."""

    def cancel() -> None:
        raise asyncio.CancelledError

    stage = Stage(software={"turns": {1: cancel}})

    with pytest.raises(asyncio.CancelledError):
        await stage.run()

    assert [entry for entry in stage.journal if entry[1] == "end"] == [(SOFTWARE, "end"), (HARDWARE, "end")]


async def test_progress_is_told_after_every_round() -> None:
    """Whoever watches hears of each finished round and how many there will be."""
    heard = []

    await rounds.measure(PLAN, HOST, progress=lambda done, planned: heard.append((done, planned)), start=Stage().start)

    assert heard == [(done, 6) for done in range(1, 7)]


async def test_the_first_libcrypto_worker_gets_the_chains() -> None:
    """The hardware worker runs all chains its CPU has in every round, and they give clock, limits and quiet rounds."""
    names = ("clock", "cbc", "encrypt", "decrypt")
    stage = Stage(hardware={"chains": names}, software={"chains": names})

    run = await stage.run()

    turns = [(lane, entry.chains) for lane, entry in stage.journal if isinstance(entry, Turn)]
    assert set(turns) == {(HARDWARE, names), (SOFTWARE, ())}
    assert run.silicon is not None
    assert run.silicon.core_hertz == 2e9
    assert run.silicon.quiet_ratio == 1.0
    assert {limit.bytes_per_second for limit in run.silicon.limits} == {32e9}
    hardware = run.outcomes[HARDWARE]
    assert isinstance(hardware, Measurement)
    assert run.cycles_per_byte(HARDWARE, hardware.figures[1]) == pytest.approx(2e9 / 10240e6)


async def test_without_aes_only_the_clock_runs() -> None:
    """Where no worker has proven AES, the software worker measures the clock and no AES instruction is run."""
    names = ("clock", "cbc", "encrypt", "decrypt")
    stage = Stage(hardware={"words": WORDS[SOFTWARE], "chains": names}, software={"chains": names})

    run = await stage.run()

    assert {entry.chains for _, entry in stage.journal if isinstance(entry, Turn)} == {("clock",)}
    assert run.silicon is not None
    assert run.silicon.limits == ()


async def test_software_at_hardware_speed_is_an_ineffective_mask_whatever_the_words_say() -> None:
    """A masked path near the limit of the AES instructions is not believed, though its words show no AES."""
    fast: dict[str, object] = {"wall_ns": 320, "chains": ("clock", "cbc", "encrypt", "decrypt")}
    stage = Stage(hardware=fast, software={"wall_ns": 330})

    run = await stage.run()

    outcome = run.outcomes[SOFTWARE]
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.MASK_INEFFECTIVE
    assert outcome.detail == "it reaches 97% of what AES instructions allow on this CPU"
    assert isinstance(run.outcomes[HARDWARE], Measurement)


async def test_a_limit_that_software_beats_is_none() -> None:
    """On an emulated CPU plain code may outrun the AES instructions: then the words decide alone."""
    names = ("clock", "cbc", "encrypt", "decrypt")
    stage = Stage(hardware={"chains": names, "wall_ns": 400}, software={"wall_ns": 290})

    run = await stage.run()

    assert isinstance(run.outcomes[SOFTWARE], Measurement)


async def test_hidden_instructions_are_measured_with_the_bit_set() -> None:
    """Where the words show no AES and the instruction works all the same, a forced lane shows what is lost."""
    stage = Stage(hardware={"words": WORDS[SOFTWARE]}, aes_works=True)

    run = await stage.run()

    assert run.hidden is True
    assert run.outcomes[HARDWARE] == NotApplicable(reason=Exemption.NO_HARDWARE)
    assert isinstance(run.outcomes[FORCED], Measurement)
    assert stage.environments[2]["OPENSSL_ia32cap"] == "0x200020200000000"


async def test_nothing_hidden_leaves_a_requested_forced_lane_not_applicable() -> None:
    """The path forced applies only where instructions are hidden; nobody tries one where the words show it."""
    run = await Stage().run(replace(PLAN, lanes=(*PLAN.lanes, FORCED)))

    assert run.outcomes[FORCED] == NotApplicable(reason=Exemption.NOT_HIDDEN)
    assert run.hidden is None


async def test_figures_carry_their_implementation_and_lanes_their_contention() -> None:
    """Every figure names the code it measured, every lane the share of its time that others had."""
    run = await Stage().run()

    hardware, software = run.outcomes[HARDWARE], run.outcomes[SOFTWARE]
    assert isinstance(hardware, Measurement)
    assert isinstance(software, Measurement)
    assert {figure.implementation for figure in hardware.figures} == {"aesni"}
    assert {figure.implementation for figure in software.figures} == {"vpaes"}
    assert hardware.contention_ratio == 0.25
