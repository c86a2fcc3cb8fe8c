"""What goes over the wall between daemon and worker: one JSON object a line, bounded both ways.

The worker speaks first (Hello), is told once what to measure (Setup), answers Ready or Refusal, and then answers every
Turn with Slices until its input ends. Decoding is strict: anything but the promised shape is a MessageError.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aes_exporter.model import ALGORITHMS, OPERATIONS, Cell, Library, Reason

MAX_LINE = 1 << 20
MAX_TEXT = 4096


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
    """Measure one slice of each of these chains, then one of each cell, starting with the cell at index `first`."""

    first: int
    chains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One timed burst: `calls` of the library took `wall_ns`, for `cpu_ns` of which the worker was on a CPU."""

    calls: int
    wall_ns: int
    cpu_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """One slice of each cell, in the order of Setup's cells, and of each chain, in the order of the Turn."""

    slices: tuple[Slice, ...]
    chains: tuple[Slice, ...] = ()


Message = Hello | Setup | Ready | Refusal | Turn | Slices


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps(asdict(message), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def hello(line: bytes) -> Hello:
    return Hello(version=_text(_object(line), "version"))


def setup(line: bytes) -> Setup:
    fields = _object(line)
    return Setup(
        version=_text(fields, "version"),
        engine=_text(fields, "engine"),
        libcrypto=None if fields.get("libcrypto") is None else _text(fields, "libcrypto"),
        cells=tuple(_cell(row) for row in _rows(fields, "cells")),
        slice_ns=_integer(fields, "slice_ns", least=1),
        nice=_integer(fields, "nice", least=-20),
        cpu=_optional_integer(fields, "cpu"),
    )


def ready(line: bytes) -> Ready | Refusal:
    fields = _object(line)
    if "reason" in fields:
        return _refusal(fields)
    library = _mapping(fields.get("library"), "library")
    return Ready(
        library=Library(**{key: _text(library, key) for key in ("name", "file", "provider")}),
        capabilities=_text(fields, "capabilities"),
        cpu=_optional_integer(fields, "cpu"),
        notes=tuple(_string(note, "notes") for note in _rows(fields, "notes")),
        chains=tuple(_string(name, "chains") for name in _rows(fields, "chains")),
    )


def turn(line: bytes, *, cells: int, chains: Collection[str]) -> Turn:
    fields = _object(line)
    first = _integer(fields, "first")
    if first >= cells:
        raise MessageError(f"no cell {first} among {cells}")
    names = tuple(_string(name, "chains") for name in _rows(fields, "chains"))
    if unknown := set(names) - set(chains):
        raise MessageError(f"no chain {min(unknown):.40} on this CPU")
    return Turn(first=first, chains=names)


def slices(line: bytes, *, cells: int, chains: int) -> Slices | Refusal:
    fields = _object(line)
    if "reason" in fields:
        return _refusal(fields)
    return Slices(slices=_slices(fields, "slices", cells), chains=_slices(fields, "chains", chains))


def _refusal(fields: Mapping[str, Any]) -> Refusal:
    reason = _text(fields, "reason")
    if reason not in list(Reason):
        raise MessageError(f"an unknown reason {reason:.40}")
    return Refusal(reason=Reason(reason), detail=_text(fields, "detail"))


def _cell(row: object) -> Cell:
    fields = _mapping(row, "cells")
    cell = Cell(
        algorithm=_text(fields, "algorithm"),
        operation=_text(fields, "operation"),
        block_size=_integer(fields, "block_size", least=16),
    )
    if cell.algorithm not in ALGORITHMS or cell.operation not in OPERATIONS or cell.block_size % 16:
        raise MessageError(f"an unknown {cell}")
    return cell


def _slices(fields: Mapping[str, Any], key: str, count: int) -> tuple[Slice, ...]:
    rows = _rows(fields, key)
    if len(rows) != count:
        raise MessageError(f"{len(rows)} {key} where {count} were asked for")
    return tuple(_slice(row) for row in rows)


def _slice(row: object) -> Slice:
    fields = _mapping(row, "slices")
    return Slice(
        calls=_integer(fields, "calls", least=1),
        wall_ns=_integer(fields, "wall_ns", least=1),
        cpu_ns=_integer(fields, "cpu_ns"),
    )


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(line), "the line")
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a JSON object: {line[:60].rstrip().decode(errors='replace')!a}") from error


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MessageError(f"no object in {key}")
    return value


def _rows(fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise MessageError(f"no list in {key}")
    return value


def _text(fields: Mapping[str, Any], key: str) -> str:
    return _string(fields.get(key), key)


def _string(value: object, key: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MessageError(f"no text of at most {MAX_TEXT} characters in {key}")
    return value


def _integer(fields: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = fields.get(key)
    if type(value) is not int or value < least:
        raise MessageError(f"no whole number of at least {least} in {key}")
    return value


def _optional_integer(fields: Mapping[str, Any], key: str) -> int | None:
    return None if fields.get(key) is None else _integer(fields, key)
