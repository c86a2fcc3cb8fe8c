"""Calibration and turns, driven by operations whose speed is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

from aes_exporter.worker.measure import calibrate, take_turn
from aes_exporter.worker.messages import Slice


class Scripted:
    """An operation that takes `call_ns` per call, times the next disturbance of a script (1 when that has run out)."""

    def __init__(
        self, call_ns: float, disturbances: tuple[float, ...] = (), journal: list[object] | None = None
    ) -> None:
        self.call_ns = call_ns
        self.disturbances: Iterator[float] = chain(disturbances, repeat(1.0))
        self.journal = [] if journal is None else journal

    def answers(self, data: bytes) -> set[bytes]:
        return {data}

    def timed(self, calls: int) -> int:
        return self.slice(0, calls).wall_ns

    def slice(self, warm_up: int, calls: int) -> Slice:
        self.journal.append((self, warm_up, calls))
        return Slice(calls=calls, wall_ns=max(1, round(calls * self.call_ns * next(self.disturbances))), cpu_ns=0)


def test_calls_fill_a_slice() -> None:
    """Calls of 100 ns make a slice of 250 us out of 2500."""
    assert calibrate(Scripted(100).timed, 250_000) == 2500


def test_a_call_longer_than_a_slice_is_still_one_call() -> None:
    """A block that takes longer than a slice is measured one call at a time, never none."""
    assert calibrate(Scripted(1_000_000).timed, 250_000) == 1


def test_a_clock_too_coarse_for_one_call_only_costs_more_calls() -> None:
    """Calls far below a nanosecond's resolution end in a finite number of calls."""
    assert calibrate(Scripted(0.01).timed, 250_000) > 1_000_000


def test_one_disturbed_burst_does_not_shorten_the_slices() -> None:
    """The shortest of three bursts decides, so a tenfold disturbance of the first one changes nothing."""
    doubling = (1.0,) * 8  # 1, 2, ... 128 calls of 100 ns stay below an eighth of the slice

    assert calibrate(Scripted(100, (*doubling, 1.0, 10.0, 1.0)).timed, 250_000) == 2500
    assert calibrate(Scripted(100, (*doubling, 10.0, 1.0, 1.0)).timed, 250_000) == 2500


def test_a_turn_rotates_and_keeps_its_order() -> None:
    """A turn starts with the cell it is told, led in by the one before, and answers in the order of the cells."""
    journal: list[object] = []
    operations = [Scripted(100 * (index + 1), journal=journal) for index in range(3)]

    slices = take_turn(operations, [80, 40, 8], 1, 1)

    assert journal == [(operations[0], 0, 10), (operations[1], 2, 40), (operations[2], 1, 8), (operations[0], 3, 80)]
    assert [(each.calls, each.wall_ns) for each in slices] == [(80, 8000), (40, 8000), (8, 2400)]


def test_a_turn_goes_in_steps() -> None:
    """With steps of three each of eight cells follows another one than with steps of one."""
    journal: list[object] = []
    operations = [Scripted(100, journal=journal) for _ in range(8)]

    take_turn(operations, [8] * 8, 2, 3)

    order = [next(index for index, each in enumerate(operations) if each is entry[0]) for entry in journal]  # type: ignore[index]
    assert order == [7, 2, 5, 0, 3, 6, 1, 4, 7]


def test_even_one_call_is_warmed_up() -> None:
    """The untimed warm-up before a slice is never empty."""
    journal: list[object] = []
    operation = Scripted(1_000_000, journal=journal)

    take_turn([operation], [1], 0, 1)

    assert journal == [(operation, 0, 1), (operation, 1, 1)]
