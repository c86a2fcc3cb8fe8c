"""What to make of a worker's answers: whether its path is proven, and its slices' figures. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from aes_exporter import capabilities, paths
from aes_exporter.model import (
    Cell,
    Exemption,
    Failure,
    Figure,
    Host,
    Lane,
    Measurement,
    NotApplicable,
    Outcome,
    Reason,
)
from aes_exporter.worker.messages import Slice

PROOF_RATIO = 1.5
"""Where capability words cannot be read, hardware must be this many times as fast as masked software..."""

PROOF_BLOCK_SIZE = 1024
"""... in the median cell of at least this many bytes a call, where the call's own cost is small beside that of AES."""


def admission(lane: Lane, words: tuple[int, ...] | None, host: Host) -> Failure | NotApplicable | None:
    """Return why a lane cannot be measured, by the words its library read back; None if nothing speaks against it."""
    if words is None:
        absent = lane.path == "hardware" and capabilities.known_without_aes(host.flags, host.architecture)
        return NotApplicable(reason=Exemption.NO_HARDWARE) if absent else None
    if paths.effective(lane.path, words, host.architecture):
        return None
    if lane.path == "hardware":
        return NotApplicable(reason=Exemption.NO_HARDWARE)
    detail = f"the library still shows AES instructions under the mask: {':'.join(map(hex, words))}"
    return Failure(reason=Reason.MASK_INEFFECTIVE, detail=detail)


def figures(cells: Sequence[Cell], rounds: Sequence[Sequence[Slice]]) -> tuple[Figure, ...]:
    """Return best and median throughput of each cell over its slices, in bytes per second."""
    return tuple(
        _figure(cell, [each.calls * cell.block_size * 1e9 / each.wall_ns for each in slices])
        for cell, slices in zip(cells, zip(*rounds, strict=True), strict=True)
    )


def _figure(cell: Cell, throughputs: Sequence[float]) -> Figure:
    return Figure(cell=cell, best=max(throughputs), median=statistics.median(throughputs))


def unproven(lane: Lane, masked: Measurement, outcomes: Mapping[Lane, Outcome]) -> Failure | None:
    """Return why a masked lane whose words cannot be read is not believed; None if the ratio proves its mask."""
    hardware = outcomes.get(Lane(engine=lane.engine, path="hardware"))
    if isinstance(hardware, NotApplicable):
        return None  # no AES instructions that a mask could have missed
    ratios = _ratios(hardware, masked) if isinstance(hardware, Measurement) else []
    if not ratios:
        detail = (
            "the library does not tell its capability words, so its mask is proven by comparison with the hardware "
            f"path at {PROOF_BLOCK_SIZE} bytes and more, which was not measured"
        )
    elif (ratio := statistics.median(ratios)) < PROOF_RATIO:
        detail = f"the hardware path is only {ratio:.2f} times as fast at {PROOF_BLOCK_SIZE} bytes and more"
    else:
        return None
    return Failure(reason=Reason.MASK_INEFFECTIVE, detail=detail)


def _ratios(hardware: Measurement, masked: Measurement) -> list[float]:
    slow = {figure.cell: figure.best for figure in masked.figures}
    return [
        figure.best / slow[figure.cell]
        for figure in hardware.figures
        if figure.cell in slow and figure.cell.block_size >= PROOF_BLOCK_SIZE
    ]
