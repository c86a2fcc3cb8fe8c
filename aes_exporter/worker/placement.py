"""Where and how urgently this process runs: one CPU and one nice value, set by the worker itself."""

from __future__ import annotations

import ctypes
import os


def settle(cpu: int | None, nice: int) -> tuple[int | None, tuple[str, ...]]:
    """Pin this process to `cpu`, or to the CPU it runs on if None, and set its nice value.

    Returns the CPU it is pinned to, None where that was refused, and what was refused in words.
    """
    notes = []
    pinned: int | None = None
    try:
        pinned = _pin(_current_cpu() if cpu is None else cpu)
    except OSError as error:
        notes.append(f"not pinned to a CPU: {error.strerror or error}")
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError as error:
        notes.append(f"nice {nice} refused: {error.strerror}, running at {os.getpriority(os.PRIO_PROCESS, 0)}")
    return pinned, tuple(notes)


def _pin(cpu: int) -> int:
    if not hasattr(os, "sched_setaffinity"):
        raise OSError("this system cannot pin a process to a CPU")
    os.sched_setaffinity(0, {cpu})
    return cpu


def _current_cpu() -> int:
    try:
        cpu = int(ctypes.CDLL(None, use_errno=True).sched_getcpu())
    except AttributeError as error:
        raise OSError("the C library does not tell the current CPU") from error
    if cpu < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return cpu
