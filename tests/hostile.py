"""Records whose every text is what an attacker might have put there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from aes_exporter.model import Lane, Speedup
from aes_exporter.vocabulary import Cell

HOSTILE = (
    "</title></style>\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}\x00\x1b[2J\u202e\udcff&lt;"
    + "W" * 300
)


def hostile(record: Any) -> Any:
    """Return a record with HOSTILE before every text in it, at any depth; words from closed lists stay as they are."""
    if isinstance(record, Cell | Lane | Speedup | Enum):
        return record
    if isinstance(record, str):
        return HOSTILE + record
    if isinstance(record, Mapping):
        return {key: hostile(value) for key, value in record.items()}
    if isinstance(record, tuple | frozenset):
        return type(record)(map(hostile, record))
    if is_dataclass(record) and not isinstance(record, type):
        values = {each.name: hostile(getattr(record, each.name)) for each in fields(record)}
        return type(record)(**values)
    return record
