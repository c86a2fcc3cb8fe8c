"""What AES costs, in the units people ask in: a Run in, for each algorithm and operation one figure a path out.

Page, `bench` and log take their headline figures from here, so that all say the same. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aes_exporter.model import Run, Speedup
from aes_exporter.vocabulary import Cell

HEADLINE = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=8192)
"""The cell that stands for a lane where there is room for one figure; its block size stands for all of them."""

UNITS: Mapping[str, Callable[[float], float]] = {
    "GB/s": lambda throughput: throughput / 1e9,
    "CPU seconds per GB": lambda throughput: 1e9 / throughput,
    "cores per 10 Gbit/s": lambda throughput: 1.25e9 / throughput,
}
"""Each unit, and how it follows from bytes per second on one core; a GB is 10^9 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An algorithm and operation at one block size: best bytes per second by path, and the speed-up if there is one."""

    cell: Cell
    throughputs: Mapping[str, float]
    speedup: Speedup | None


def headline_engine(run: Run) -> str:
    """Return the engine that stands for the host: the first that was measured, or the first of all."""
    return next((lane.engine for lane, _ in run.measured()), next(iter(run.outcomes)).engine)


def comparisons(run: Run, engine: str) -> list[Comparison]:
    """Return what was measured of an engine at the block size of HEADLINE, or at the largest where that is missing."""
    throughputs: dict[Cell, dict[str, float]] = {}
    for lane, measurement in run.measured():
        for figure in measurement.figures if lane.engine == engine else ():
            throughputs.setdefault(figure.cell, {})[lane.path] = figure.best
    sizes = {cell.block_size for cell in throughputs}
    size = HEADLINE.block_size if HEADLINE.block_size in sizes else max(sizes, default=0)
    speedups = {speedup.cell: speedup for speedup in reversed([*run.speedups()]) if speedup.engine == engine}
    return [
        Comparison(cell=cell, throughputs=by_path, speedup=speedups.get(cell))
        for cell, by_path in throughputs.items()
        if cell.block_size == size
    ]


def number(value: float) -> str:
    """Return a positive number with three significant digits, and with all digits before the point."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
