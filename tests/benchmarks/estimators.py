"""Which figure made from the slices of a cell repeats best? Compares estimators on the same raw slices.

Run: python -m tests.benchmarks.estimators     (half a minute)
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aes_exporter import rounds, workers
from aes_exporter.config import load
from aes_exporter.host import read
from aes_exporter.model import Cell, Lane
from aes_exporter.silicon import quiet_rounds
from aes_exporter.worker.messages import Slice, Slices, Turn
from aes_exporter.workers import Worker

RUNS = 10
ENOUGH_QUIET = 10


class Recorder:
    """Starts real workers and keeps every slice that they report."""

    def __init__(self) -> None:
        self.lanes: list[list[Slices]] = []

    @asynccontextmanager
    async def start(self, environment: Mapping[str, str]) -> AsyncIterator[Worker]:
        async with workers.start(environment) as worker:
            kept: list[Slices] = []
            self.lanes.append(kept)
            take_turn = worker.take_turn

            async def recorded(turn: Turn, *, cells: int) -> Slices:
                kept.append(await take_turn(turn, cells=cells))
                return kept[-1]

            worker.take_turn = recorded  # type: ignore[method-assign]
            yield worker


Sample = tuple[list[float], list[bool]]
"""Nanoseconds a byte of one cell in every round of a run, and whether that round was quiet."""


def samples(cells: Sequence[Cell], lane: Sequence[Slices], quiet: list[bool]) -> dict[Cell, Sample]:
    return {
        cell: ([each.slices[i].wall_ns / each.slices[i].calls / cell.block_size for each in lane], quiet)
        for i, cell in enumerate(cells)
    }


def quiet_only(sample: Sample) -> float:
    times = [time for time, quiet in zip(*sample, strict=True) if quiet]
    return min(times if len(times) >= ENOUGH_QUIET else sample[0])


ESTIMATORS: Mapping[str, Callable[[Sample], float]] = {
    "shortest slice": lambda sample: min(sample[0]),
    "shortest slice of quiet rounds": quiet_only,
    "third shortest": lambda sample: sorted(sample[0])[2],
    "mean of the three shortest": lambda sample: statistics.mean(sorted(sample[0])[:3]),
    "fifth percentile": lambda sample: statistics.quantiles(sample[0], n=20)[0],
    "shortest of half the rounds": lambda sample: min(sample[0][::2]),
    "median": lambda sample: statistics.median(sample[0]),
}


def collect() -> list[dict[tuple[Lane, Cell], Sample]]:
    plan = replace(load("bench", {"--benchmark.engine": ["libcrypto"]}, {}).plan)
    runs = []
    for _ in range(RUNS):
        recorder = Recorder()
        asyncio.run(rounds.measure(plan, read(), start=recorder.start))
        clock: list[Slice] = [turn.chains[0] for turn in recorder.lanes[0] if turn.chains]
        quiet = quiet_rounds(clock) if clock else [True] * plan.rounds
        runs.append(
            {
                (lane, cell): sample
                for lane, kept in zip(plan.lanes, recorder.lanes, strict=True)
                for cell, sample in samples(plan.cells, kept, quiet).items()
            }
        )
    return runs


def spreads(
    runs: Sequence[Mapping[tuple[Lane, Cell], Sample]], estimate: Callable[[Sample], float]
) -> dict[Cell, float]:
    """Return for each cell how far the slowest of all runs lies above the fastest, the worse of the two lanes."""
    found: dict[Cell, float] = {}
    for lane, cell in runs[0]:
        values = [estimate(run[lane, cell]) for run in runs]
        found[cell] = max(found.get(cell, 0.0), max(values) / min(values) - 1)
    return found


def report() -> Iterator[str]:
    """Yield the section of docs/accuracy.md: the same raw slices of ten runs, judged by each estimator."""
    runs = collect()
    yield "## Which estimator"
    yield ""
    yield "Spread over ten runs of what each estimator makes of the same slices, worst and median cell:"
    yield ""
    yield "| estimator | 16 B, worst | 16 B, median | 64 B and more, worst | 64 B and more, median |"
    yield "|---|---|---|---|---|"
    for name, estimate in ESTIMATORS.items():
        found = spreads(runs, estimate)
        small = [spread for cell, spread in found.items() if cell.block_size == 16]
        large = [spread for cell, spread in found.items() if cell.block_size > 16]
        figures = (max(small), statistics.median(small), max(large), statistics.median(large))
        yield f"| {name} | {' | '.join(f'{figure * 100:.2f} %' for figure in figures)} |"
    yield ""


if __name__ == "__main__":
    print("\n".join(report()))
