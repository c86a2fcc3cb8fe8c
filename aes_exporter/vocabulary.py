"""The few words that cross the wall between daemon and worker.

Apart from model.py because every worker of every run pays for importing this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ALGORITHMS = ("aes-128-cbc", "aes-128-ecb")
OPERATIONS = ("encrypt", "decrypt")


class Reason(StrEnum):
    """Why a lane failed: it should have been measured and was not."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    SIGNAL = "signal"
    BAD_REPLY = "bad_reply"
    WRONG_ANSWER = "wrong_answer"
    MASK_INEFFECTIVE = "mask_ineffective"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    VERSION_MISMATCH = "version_mismatch"
    SPAWN_FAILED = "spawn_failed"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One thing measured in every lane; `block_size` is in bytes per library call."""

    algorithm: str
    operation: str
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library that was measured: its name and version, the file really mapped, its provider ("" where unknown)."""

    name: str
    file: str = ""
    provider: str = ""
