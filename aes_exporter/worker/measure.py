"""Calibrate a cell and take its slices. Pure: an Operation does the calls and reads the clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aes_exporter.worker.engines import Operation
from aes_exporter.worker.messages import Slice

WARM_UP_SHARE = 32
"""One in 32 of a slice's calls precede it untimed, to bring code and buffer back into the caches."""


def calibrate(operation: Operation, slice_ns: int) -> int:
    """Return how many calls take about `slice_ns` nanoseconds, at least one.

    The number doubles until a burst takes an eighth of a slice, long enough for the clock; the shortest of three such
    bursts then decides, since a disturbed one would make all slices of the cell too short.
    """
    calls = 1
    while (elapsed := operation.slice(0, calls).wall_ns) < slice_ns / 8:
        calls *= 2
    elapsed = min(elapsed, *(operation.slice(0, calls).wall_ns for _ in range(2)))
    return max(1, round(calls * slice_ns / elapsed))


def take_turn(
    operations: Sequence[Operation], calls: Sequence[int], first: int, probe: Callable[[], int]
) -> list[Slice]:
    """Return one slice of each operation, measured from index `first` on and around, in the order of `operations`.

    The core is probed before and after each slice, and the slice bears the longer of the two.
    """
    count = len(operations)
    slices: dict[int, Slice] = {}
    before = probe()
    for index in ((first + step) % count for step in range(count)):
        taken = operations[index].slice(-(-calls[index] // WARM_UP_SHARE), calls[index])
        after = probe()
        slices[index] = replace(taken, probe_ns=max(before, after))
        before = after
    return [slices[index] for index in range(count)]
