"""Which figure made from the slices of a cell repeats best? Judges estimators by the same raw slices of many runs."""

from __future__ import annotations

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
    """The slices of one cell in every round of a run, and those of the clock chain in the same rounds."""

    slices: Sequence[Slice]
    clock: Sequence[Slice]

    @property
    def undisturbed(self) -> Sample:
        """The slices that the exporter takes for undisturbed."""
        found = verdict.undisturbed(self.slices, min(each.probe_ns for each in self.slices))
        return Sample(slices=found, clock=self.clock)

    @property
    def times(self) -> list[float]:
        """Nanoseconds a call of each slice."""
        return [each.wall_ns / each.calls for each in self.slices]

    @property
    def quarters(self) -> list[float]:
        """Nanoseconds a call of the fastest quarter of each slice."""
        return [each.fastest_ns / each.calls for each in self.slices]


def of_quiet_rounds(sample: Sample) -> list[float]:
    """The clock chain was within 0.3 % of its best when the round began."""
    quiet = [time for time, calm in zip(sample.times, quiet_rounds(sample.clock), strict=True) if calm]
    return quiet if len(quiet) >= verdict.ENOUGH else sample.times


ESTIMATORS: Mapping[str, Callable[[Sample], float]] = {
    "fastest quarter of undisturbed slices (taken)": lambda sample: min(sample.undisturbed.quarters),
    "third of the fastest quarters of undisturbed slices": lambda sample: sorted(sample.undisturbed.quarters)[2],
    "fastest quarter": lambda sample: min(sample.quarters),
    "shortest undisturbed slice": lambda sample: min(sample.undisturbed.times),
    "shortest slice of quiet rounds": lambda sample: min(of_quiet_rounds(sample)),
    "shortest slice": lambda sample: min(sample.times),
    "shortest slice of half the rounds": lambda sample: min(sample.times[::2]),
    "third shortest slice": lambda sample: sorted(sample.times)[2],
    "mean of the three shortest slices": lambda sample: statistics.mean(sorted(sample.times)[:3]),
    "fifth percentile": lambda sample: statistics.quantiles(sample.times, n=20)[0],
    "median of the undisturbed slices": lambda sample: statistics.median(sample.undisturbed.times),
    "median": lambda sample: statistics.median(sample.times),
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
