"""What to make of a worker's answers: whether its path is proven, and its slices' figures. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aes_exporter import capabilities, paths
from aes_exporter.model import Exemption, Failure, Figure, Host, Lane, Measurement, NotApplicable, Outcome, Run, Silicon
from aes_exporter.vocabulary import Cell, Reason
from aes_exporter.worker.messages import Slice

PROOF_RATIO = 1.5
"""Where capability words cannot be read, hardware must be this many times as fast as masked software..."""

PROOF_BLOCK_SIZE = 1024
"""... in the median cell of at least this many bytes a call, where the call's own cost is small beside that of AES."""

HARDWARE_SHARE = 1 / 1.5
"""A path that reaches this share of the limit of the AES instructions in its median cell uses them."""

HONEST_SHARE = 1.05
"""Above this share it is no limit: the CPU is emulated, and plain code may be faster than its AES instructions."""


UNDISTURBED = 1.02
"""A part of a slice is undisturbed if the probes around it took at most this many times the run's shortest..."""

ENOUGH = 8
"""... and with fewer undisturbed parts than this of a cell, all of them count."""

FASTEST = 8
"""The best is the mean of the fastest one in so many, since the very fastest are luck: a rhythm that few parts find."""


def admission(lane: Lane, words: tuple[int, ...] | None, host: Host) -> Failure | NotApplicable | None:
    """Return why a lane cannot be measured, by the words its library read back; None if nothing speaks against it."""
    if words is None:
        absent = lane.path == "hardware" and capabilities.known_without_aes(host.flags, host.architecture)
        return NotApplicable(reason=Exemption.NO_HARDWARE) if absent else None
    if paths.effective(lane.path, words, host.architecture):
        return None
    if lane.path == "hardware":
        return NotApplicable(reason=Exemption.NO_HARDWARE)
    shown = (
        "does not show the AES instructions set for it"
        if lane.path == "forced"
        else "still shows AES instructions under the mask"
    )
    return _ineffective(f"the library {shown}: {':'.join(map(hex, words))}")


def contention(rounds: Sequence[Sequence[Slice]]) -> float:
    """Return the share of the slices' wall time in which the worker was on no CPU, 0 to 1."""
    slices = [each for slices in rounds for each in slices]
    return max(0.0, 1 - sum(each.cpu_ns for each in slices) / sum(each.wall_ns for each in slices))


def figures(cells: Sequence[Cell], rounds: Sequence[Sequence[Slice]]) -> tuple[Figure, ...]:
    """Return best and median throughput of each cell over its slices, in bytes per second.

    The best is that of the undisturbed parts: most calls are slower beside a busy sibling thread of the core, but some
    are 2 % faster, and the two do not mix in one figure that repeats.
    """
    probe_ns = min(min(each.timings[::2], default=0) for slices in rounds for each in slices)
    return tuple(_figure(cell, slices, probe_ns) for cell, slices in zip(cells, zip(*rounds, strict=True), strict=True))


def _figure(cell: Cell, slices: Sequence[Slice], probe_ns: int) -> Figure:
    paces = sorted(undisturbed(slices, probe_ns))
    best = statistics.fmean(paces[: -(-len(paces) // FASTEST)])
    median = statistics.median(each.pace for each in slices)
    bytes_ = cell.block_size * 1e9
    return Figure(cell=cell, best=bytes_ / min(best, median), median=bytes_ / median)


def undisturbed(slices: Sequence[Slice], probe_ns: int) -> list[float]:
    """Return nanoseconds a call of the parts around which probes took hardly longer than `probe_ns`.

    Of all parts, if those are too few.
    """
    parts = [part for each in slices for part in each.parts]
    found = [pace for pace, probe in parts if probe <= UNDISTURBED * probe_ns]
    return found if len(found) >= ENOUGH else [pace for pace, _ in parts]


def unmasked(
    lane: Lane, masked: Measurement, outcomes: Mapping[Lane, Outcome], silicon: Silicon | None, *, proven: bool
) -> Failure | None:
    """Return why a masked lane is not believed, None if it is.

    As fast as AES instructions is `mask_ineffective` whatever the words say. Where they do not say (`proven` is false),
    the mask is proven by the ratio to the hardware path, unless that is slow, too: then there was nothing to mask.
    """
    share = share_of_limit(masked, silicon) if lane.engine == "libcrypto" else None
    if share is not None and HARDWARE_SHARE <= share <= HONEST_SHARE:
        return _ineffective(f"it reaches {share:.0%} of what AES instructions allow on this CPU")
    hardware = outcomes.get(Lane(engine=lane.engine, path="hardware"))
    if proven or isinstance(hardware, NotApplicable):
        return None
    ratio = speedup(hardware, masked) if isinstance(hardware, Measurement) else None
    if not isinstance(hardware, Measurement) or ratio is None:
        return _ineffective(
            "the library does not tell its capability words, so its mask is proven by comparison with the hardware "
            f"path at {PROOF_BLOCK_SIZE} bytes and more, which was not measured"
        )
    if ratio >= PROOF_RATIO or (share_of_limit(hardware, silicon) or 1) < HARDWARE_SHARE:
        return None
    return _ineffective(f"the hardware path is only {ratio:.2f} times as fast at {PROOF_BLOCK_SIZE} bytes and more")


def _ineffective(detail: str) -> Failure:
    return Failure(reason=Reason.MASK_INEFFECTIVE, detail=detail)


def accelerated(engine: str, run: Run) -> bool | None:
    """Return whether an engine's hardware path is as fast as only AES instructions are; None where nothing tells."""
    hardware = run.outcomes.get(Lane(engine=engine, path="hardware"))
    if not isinstance(hardware, Measurement):
        return None
    share = share_of_limit(hardware, run.silicon)
    masked = run.outcomes.get(Lane(engine=engine, path="software"))
    ratio = speedup(hardware, masked) if isinstance(masked, Measurement) else None
    if share is None and ratio is None:
        return None
    return (share or 0) >= HARDWARE_SHARE or (ratio or 0) >= PROOF_RATIO


def share_of_limit(measurement: Measurement, silicon: Silicon | None) -> float | None:
    """Return which share of the limit of the AES instructions the median cell of PROOF_BLOCK_SIZE and more reaches."""
    limits = {
        (limit.algorithm, limit.operation): limit.bytes_per_second
        for limit in (silicon.limits if silicon else ())
        if limit.instructions == "aes"
    }
    return _median(
        figure.best / limits[figure.cell.algorithm, figure.cell.operation]
        for figure in _large(measurement)
        if (figure.cell.algorithm, figure.cell.operation) in limits
    )


def speedup(hardware: Measurement, masked: Measurement) -> float | None:
    """Return how many times as fast hardware is in the median cell of PROOF_BLOCK_SIZE and more that both have."""
    slow = {figure.cell: figure.best for figure in masked.figures}
    return _median(figure.best / slow[figure.cell] for figure in _large(hardware) if figure.cell in slow)


def _large(measurement: Measurement) -> Iterator[Figure]:
    return (figure for figure in measurement.figures if figure.cell.block_size >= PROOF_BLOCK_SIZE)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
