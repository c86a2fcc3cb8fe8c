"""What goes over the wall between daemon and worker: one JSON object a line, bounded both ways.

The worker speaks first (Hello), is told once what to measure (Setup), answers Ready or Refusal, and then answers every
Turn with Slices until its input ends. Decoding is strict: anything but the promised shape is a MessageError.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import gcd
from typing import Any

from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell, Library, Reason

MAX_LINE = 1 << 20
MAX_TEXT = 4096

PARTS = 4
"""A slice is timed in so many parts."""


class MessageError(ValueError):
    """A line that is not the message it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The worker's first line. Every version of the package, past or future, says its version in this key."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The daemon's first line: prepare these cells. `cpu` None means: stay on the CPU where you were started."""

    version: str
    engine: str
    libcrypto: str | None
    cells: tuple[Cell, ...]
    slice_ns: int
    nice: int
    cpu: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All cells are set up, calibrated, and gave the right bytes.

    `capabilities` is the line in which the library prints its capability words, "" where it prints none; `cpu` the CPU
    this worker is pinned to, None if pinning was refused; `notes` say in words what was refused; `chains` names the
    instruction chains that this CPU can run, see chains.py.
    """

    library: Library
    capabilities: str
    cpu: int | None
    notes: tuple[str, ...]
    chains: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The worker cannot measure, and why."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Measure one slice of each of these chains, then one of each cell.

    The first cell is that at index `first`, and each next one `step` further on and around; `step` has no divisor in
    common with the number of cells, so that each has its turn.
    """

    first: int
    step: int
    chains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One timed burst of `calls` calls of the library.

    It took `wall_ns`, for `cpu_ns` of which the worker was on a CPU. `timings` are nanoseconds of a probe of the core
    (probe.py), of the first part of the calls, of a probe, and so on to a last probe; there are none for a slice in one
    piece.
    """

    calls: int
    wall_ns: int
    cpu_ns: int
    timings: tuple[int, ...] = ()

    @property
    def pace(self) -> float:
        """Nanoseconds a call, over all parts."""
        return (sum(self.timings[1::2]) or self.wall_ns) / self.calls

    @property
    def parts(self) -> Iterator[tuple[float, int]]:
        """Of each part the nanoseconds a call, and the longer of the probes around it; 0 if there was none."""
        if not self.timings:
            yield self.pace, 0
            return
        probes, parts = self.timings[::2], self.timings[1::2]
        for part, calls in enumerate(shares(self.calls)):
            yield parts[part] / calls, max(probes[part], probes[part + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """One slice of each cell, in the order of Setup's cells, and of each chain, in the order of the Turn."""

    slices: tuple[Slice, ...]
    chains: tuple[Slice, ...] = ()


@lru_cache(maxsize=128)
def shares(calls: int) -> tuple[int, ...]:
    """Return how many of a slice's calls each of its parts makes; with too few calls there are fewer parts."""
    parts = min(PARTS, calls)
    return tuple((calls + parts - 1 - part) // parts for part in range(parts))


Message = Hello | Setup | Ready | Refusal | Turn | Slices


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    return _ENCODER.encode(message).encode() + b"\n"


def _plain(record: Any) -> object:
    """Return what stands for a record in JSON. `asdict` would copy it all: it took longer than a slice of a cell."""
    if isinstance(record, Slice):
        return record.calls, record.wall_ns, record.cpu_ns, *record.timings
    return {each.name: getattr(record, each.name) for each in fields(record)}


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain)


def hello(line: bytes) -> Hello:
    return Hello(version=_text(_object(line), "version"))


def setup(line: bytes) -> Setup:
    found = _object(line)
    return Setup(
        version=_text(found, "version"),
        engine=_text(found, "engine"),
        libcrypto=None if found.get("libcrypto") is None else _text(found, "libcrypto"),
        cells=tuple(_cell(row) for row in _rows(found, "cells")),
        slice_ns=_integer(found, "slice_ns", least=1),
        nice=_integer(found, "nice", least=-20),
        cpu=_optional_integer(found, "cpu"),
    )


def ready(line: bytes) -> Ready | Refusal:
    found = _object(line)
    if "reason" in found:
        return _refusal(found)
    library = _mapping(found.get("library"), "library")
    return Ready(
        library=Library(**{key: _text(library, key) for key in ("name", "file", "provider")}),
        capabilities=_text(found, "capabilities"),
        cpu=_optional_integer(found, "cpu"),
        notes=tuple(_string(note, "notes") for note in _rows(found, "notes")),
        chains=tuple(_string(name, "chains") for name in _rows(found, "chains")),
    )


def turn(line: bytes, *, cells: int, chains: Collection[str]) -> Turn:
    found = _object(line)
    first = _integer(found, "first")
    if first >= cells:
        raise MessageError(f"no cell {first} among {cells}")
    step = _integer(found, "step", least=1)
    if gcd(step, cells) != 1:
        raise MessageError(f"steps of {step} miss some of {cells} cells")
    names = tuple(_string(name, "chains") for name in _rows(found, "chains"))
    if unknown := set(names) - set(chains):
        raise MessageError(f"no chain {min(unknown):.40} on this CPU")
    return Turn(first=first, step=step, chains=names)


def slices(line: bytes, *, cells: int, chains: int) -> Slices | Refusal:
    found = _object(line)
    if "reason" in found:
        return _refusal(found)
    return Slices(slices=_slices(found, "slices", cells), chains=_slices(found, "chains", chains))


def _refusal(found: Mapping[str, Any]) -> Refusal:
    reason = _text(found, "reason")
    if reason not in list(Reason):
        raise MessageError(f"an unknown reason {reason:.40}")
    return Refusal(reason=Reason(reason), detail=_text(found, "detail"))


def _cell(row: object) -> Cell:
    found = _mapping(row, "cells")
    cell = Cell(
        algorithm=_text(found, "algorithm"),
        operation=_text(found, "operation"),
        block_size=_integer(found, "block_size", least=16),
    )
    if cell.algorithm not in ALGORITHMS or cell.operation not in OPERATIONS or cell.block_size % 16:
        raise MessageError(f"an unknown {cell}")
    return cell


def _slices(found: Mapping[str, Any], key: str, count: int) -> tuple[Slice, ...]:
    rows = _rows(found, key)
    if len(rows) != count:
        raise MessageError(f"{len(rows)} {key} where {count} were asked for")
    return tuple(_slice(row) for row in rows)


def _slice(row: object) -> Slice:
    if not isinstance(row, list) or not 3 <= len(row) <= 4 + 2 * PARTS or set(map(type, row)) != {int}:
        raise MessageError("a slice that is not a few whole numbers")
    calls, wall_ns, cpu_ns, *timings = row
    if min(calls, wall_ns, *timings[1::2]) < 1 or min((cpu_ns, *timings)) < 0:
        raise MessageError(f"an impossible slice {row}")
    if timings and len(timings) != 2 * min(PARTS, calls) + 1:
        raise MessageError(f"{len(timings)} timings of {calls} calls")
    return Slice(calls=calls, wall_ns=wall_ns, cpu_ns=cpu_ns, timings=tuple(timings))


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(line), "the line")
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a JSON object: {line[:60].rstrip().decode(errors='replace')!a}") from error


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MessageError(f"no object in {key}")
    return value


def _rows(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if not isinstance(value, list):
        raise MessageError(f"no list in {key}")
    return value


def _text(found: Mapping[str, Any], key: str) -> str:
    return _string(found.get(key), key)


def _string(value: object, key: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MessageError(f"no text of at most {MAX_TEXT} characters in {key}")
    return value


def _integer(found: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = found.get(key)
    if type(value) is not int or value < least:
        raise MessageError(f"no whole number of at least {least} in {key}")
    return value


def _optional_integer(found: Mapping[str, Any], key: str) -> int | None:
    return None if found.get(key) is None else _integer(found, key)
