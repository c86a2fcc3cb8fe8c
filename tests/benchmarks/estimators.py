"""Which figure made from the slices of a cell repeats best? Judges estimators by the same raw slices of many runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aes_exporter import verdict
from aes_exporter.silicon import quiet_rounds
from aes_exporter.worker.messages import Slice

Key = tuple[str, str, str, int]
"""Algorithm, operation, path, block size."""


@dataclass(frozen=True)
class Sample:
    """The slices of one cell in every round of a run, those of the clock chain in the same rounds, and a calm probe.

    `probe_ns` is the shortest probe of the worker.
    """

    slices: Sequence[Slice]
    clock: Sequence[Slice]
    probe_ns: int

    @property
    def times(self) -> list[float]:
        """Nanoseconds a call of each slice, in the order of the rounds."""
        return [each.pace for each in self.slices]

    @property
    def parts(self) -> list[float]:
        """Nanoseconds a call of each part of each slice, sorted."""
        return sorted(pace for each in self.slices for pace, _ in each.parts)

    @property
    def undisturbed(self) -> list[float]:
        """Nanoseconds a call of the parts that the exporter takes for undisturbed, sorted."""
        return sorted(verdict.undisturbed(self.slices, self.probe_ns))

    @property
    def of_quiet_rounds(self) -> list[float]:
        """Nanoseconds a call where the clock chain was within 0.3 % of its best when the round began."""
        quiet = [time for time, calm in zip(self.times, quiet_rounds(self.clock), strict=True) if calm]
        return quiet if len(quiet) >= verdict.ENOUGH else self.times


def fastest(share: float, times: Sequence[float]) -> float:
    """Return the mean of the fastest share of some sorted times."""
    return statistics.mean(times[: math.ceil(share * len(times))])


ESTIMATORS: Mapping[str, Callable[[Sample], float]] = {
    "mean of the fastest eighth of undisturbed parts (taken)": lambda sample: fastest(1 / 8, sample.undisturbed),
    "... of the fastest sixteenth": lambda sample: fastest(1 / 16, sample.undisturbed),
    "... of the fastest quarter": lambda sample: fastest(1 / 4, sample.undisturbed),
    "fastest undisturbed part": lambda sample: sample.undisturbed[0],
    "third of the undisturbed parts": lambda sample: sample.undisturbed[2],
    "median of the undisturbed parts": lambda sample: statistics.median(sample.undisturbed),
    "fastest part": lambda sample: sample.parts[0],
    "mean of the fastest eighth of all parts": lambda sample: fastest(1 / 8, sample.parts),
    "shortest slice": lambda sample: min(sample.times),
    "shortest slice of quiet rounds": lambda sample: min(sample.of_quiet_rounds),
    "shortest slice of half the rounds": lambda sample: min(sample.times[::2]),
    "third shortest slice": lambda sample: sorted(sample.times)[2],
    "fifth percentile of the slices": lambda sample: statistics.quantiles(sample.times, n=20)[0],
    "median of the slices": lambda sample: statistics.median(sample.times),
}


def report(
    idle: Sequence[Mapping[Key, Sample]], busy: Sequence[Mapping[Key, Sample]], limited: Sequence[Mapping[Key, Sample]]
) -> Iterator[str]:
    """Yield the section of docs/accuracy.md: the same raw slices of all runs, judged by each estimator."""
    yield "## Which estimator"
    yield ""
    yield f"Spread of {len(idle)} idle runs by what is made of their slices, in the worst and in the median cell; and"
    yield "the lowest figure of all cells of 256 bytes and more under four busy loops and under the quota, to idle:"
    yield ""
    yield "| estimator | 16 B, worst | median | 64 B and more, worst | median | busy | quota |"
    yield "|---|---|---|---|---|---|---|"
    for name, estimate in ESTIMATORS.items():
        times = {key: [estimate(run[key]) for run in idle] for key in idle[0]}
        spreads = [
            [1 - min(found) / max(found) for key, found in times.items() if (key[3] == 16) is small]
            for small in (True, False)
        ]
        figures = [function(found) for found in spreads for function in (max, statistics.median)]
        shares = [
            _lowest(times, [{key: estimate(run[key]) for key in run} for run in runs]) for runs in (busy, limited)
        ]
        yield f"| {name} | {' | '.join(f'{figure * 100:.2f} %' for figure in figures)} | {' | '.join(shares)} |"
    yield ""


def _lowest(idle: Mapping[Key, Sequence[float]], runs: Sequence[Mapping[Key, float]]) -> str:
    shares = [statistics.median(idle[key]) / time for run in runs for key, time in run.items() if key[3] >= 256]
    return f"{min(shares):.3f}" if shares else ""
