"""The words that every room of the daemon shares: closed lists and frozen records.

Standard library only, no input or output. Units stand in the names; tuples instead of lists, so that a record that
exists can neither change nor be half built. What workers must understand, too, is in vocabulary.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from aes_exporter.vocabulary import Cell, Library, Reason

ENGINES = ("libcrypto", "cryptography")
PATHS = ("hardware", "software", "table", "forced")
BLOCK_SIZES = (16, 64, 256, 1024, 8192, 16384)
MASKED_PATHS = ("software", "table")


class Exemption(StrEnum):
    """Why a lane does not apply to this host: nothing went wrong and nothing is counted."""

    NO_HARDWARE = "no_hardware"
    MASK_UNSUPPORTED = "mask_unsupported"
    NOT_HIDDEN = "not_hidden"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lane:
    """One worker's subject: an engine on a path. Lanes are measured side by side, round by round."""

    engine: str
    path: str

    def __str__(self) -> str:
        return f"{self.engine}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run measures and how. `pause_seconds` is from the start of a round to the start of the next."""

    lanes: tuple[Lane, ...]
    cells: tuple[Cell, ...]
    rounds: int
    slice_ns: int
    pause_seconds: float
    budget_seconds: float
    nice: int
    cpu: int | None
    libcrypto: str | None

    def seconds(self) -> float:
        """What a run takes by its own settings, in seconds, without start-up and warm-up."""
        slices = len(self.cells) * len(self.lanes) * self.slice_ns / 1e9
        return self.rounds * (slices + self.pause_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a cell reached on one lane, in bytes per second: in its fastest slices and in the median one.

    `implementation` is the code that the library ran, such as "aesni" or "vpaes".
    """

    cell: Cell
    best: float
    median: float
    implementation: str = "unknown"

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.best:
            raise ValueError(f"a throughput must be positive and its median not above its best: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A lane that was measured, with the crypto-relevant CPU flags in effect on it (sorted).

    `contention_ratio` is the share of the slices' wall time in which the worker was on no CPU; None where unknown.
    """

    library: Library
    cpu_flags: tuple[str, ...]
    figures: tuple[Figure, ...]
    contention_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """A lane that makes no sense on this host."""

    reason: Exemption


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A lane that failed; `detail` is one line for people."""

    reason: Reason
    detail: str


Outcome = Measurement | NotApplicable | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """How many times the hardware path's best throughput is that of the masked path named `baseline`."""

    engine: str
    cell: Cell
    baseline: str
    cpu_flags: tuple[str, ...]
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What this CPU's AES instructions allow for an algorithm and operation; `instructions` is "aes" or "vaes"."""

    algorithm: str
    operation: str
    instructions: str
    bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Silicon:
    """What a run found out about the CPU itself: clock, limits, and the share of rounds that were quiet."""

    core_hertz: float
    quiet_ratio: float
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished run. `started` is Unix time, `cpu` the CPU it was pinned to; `cpu_seconds` include the workers'.

    `hidden` is whether AES instructions were found to work although no flag shows them, None where nobody looked;
    `steal_ratio` is the share of the host's CPU time that a hypervisor took, `throttled_periods` how often a CPU quota
    stopped this process; None where unknown.
    """

    started: float
    duration_seconds: float
    cpu_seconds: float
    rounds: int
    cpu: int | None
    outcomes: Mapping[Lane, Outcome]
    silicon: Silicon | None = None
    hidden: bool | None = None
    steal_ratio: float | None = None
    throttled_periods: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", MappingProxyType(dict(self.outcomes)))

    def measured(self) -> Iterator[tuple[Lane, Measurement]]:
        """Yield the lanes that were measured, in the order of the plan."""
        for lane, outcome in self.outcomes.items():
            if isinstance(outcome, Measurement):
                yield lane, outcome

    def failures(self) -> Iterator[tuple[Lane, Failure]]:
        """Yield the lanes that failed, in the order of the plan."""
        for lane, outcome in self.outcomes.items():
            if isinstance(outcome, Failure):
                yield lane, outcome

    @property
    def failed(self) -> bool:
        """Whether the run measured nothing."""
        return not any(True for _ in self.measured())

    def cycles_per_byte(self, lane: Lane, figure: Figure) -> float | None:
        """Return core cycles per byte by the clock of this run; for the engine libcrypto only."""
        if self.silicon is None or lane.engine != "libcrypto":
            return None
        return self.silicon.core_hertz / figure.best

    def speedups(self) -> Iterator[Speedup]:
        """Yield best hardware over best masked throughput for each engine, masked path and cell that has both."""
        measured = dict(self.measured())
        for lane, masked in measured.items():
            hardware = measured.get(Lane(engine=lane.engine, path="hardware"))
            if lane.path not in MASKED_PATHS or hardware is None:
                continue
            slow = {figure.cell: figure.best for figure in masked.figures}
            for figure in hardware.figures:
                if figure.cell in slow:
                    yield Speedup(
                        engine=lane.engine,
                        cell=figure.cell,
                        baseline=lane.path,
                        cpu_flags=hardware.cpu_flags,
                        ratio=figure.best / slow[figure.cell],
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDriver:
    """What the kernel would use for an algorithm such as "cbc(aes)", and whether it uses AES instructions."""

    algorithm: str
    driver: str
    accelerated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A setting that switches AES off for programs that get it: a file or an environment, the variable, its value."""

    place: str
    variable: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Identity of the CPU, "" where unknown. `flags` are the crypto-relevant ones present; None where nobody knows."""

    architecture: str
    flags: frozenset[str] | None = None
    brand: str = ""
    vendor: str = ""
    family: str = ""
    model: str = ""
    stepping: str = ""
    hypervisor: str = ""
    kernel_drivers: tuple[KernelDriver, ...] = ()
    masks: tuple[Mask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfigReading:
    """How the latest reading of the web config went, and when one last went well, in seconds of Unix time."""

    successful: bool
    last_success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a scrape shows: the host, the latest run, and the history behind the counters.

    A new Snapshot replaces the old one whenever something happened, so a scrape never sees half of it.
    """

    host: Host
    lanes: tuple[Lane, ...]
    interval_seconds: float
    run: Run | None = None
    in_progress: bool = False
    runs: int = 0
    runs_failed: int = 0
    runs_skipped: int = 0
    run_cpu_seconds: float = 0.0
    failures: Mapping[tuple[Lane, Reason], int] = field(default_factory=lambda: MappingProxyType({}))
    last_success: Mapping[Lane, float] = field(default_factory=lambda: MappingProxyType({}))
    web_config: WebConfigReading | None = None

    def begun(self) -> Snapshot:
        """Return the state with a run under way."""
        return replace(self, in_progress=True)

    def skipped(self, count: int) -> Snapshot:
        """Return the state after `count` runs that were due did not take place."""
        return replace(self, runs_skipped=self.runs_skipped + count)

    def ended(self, run: Run) -> Snapshot:
        """Return the state after a run, whatever came of it."""
        failures = dict(self.failures)
        for lane, failure in run.failures():
            failures[lane, failure.reason] = failures.get((lane, failure.reason), 0) + 1
        finished = run.started + run.duration_seconds
        return replace(
            self,
            run=run,
            in_progress=False,
            runs=self.runs + 1,
            runs_failed=self.runs_failed + run.failed,
            run_cpu_seconds=self.run_cpu_seconds + run.cpu_seconds,
            failures=MappingProxyType(failures),
            last_success=MappingProxyType({**self.last_success, **{lane: finished for lane, _ in run.measured()}}),
        )
