"""The log: one line per event on standard error, as logfmt or JSON, with the same keys in both.

In: the records of the standard library's `logging`. Out: lines that nothing from outside can forge, break or colour.
Logging never raises into the program: a log that is full or closed loses lines, not measurements.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from typing import TextIO

from logfmter import Logfmter

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {number: name for name, number in _LEVELS.items()} | {logging.CRITICAL: "error"}
_KEYS = {"time": "asctime", "level": "levelname", "caller": "name"}


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all records of `level` ("debug", "info", "warn", "error") and above to `stream`, standard error by default.

    `log_format` is "logfmt" or "json". What was configured before is replaced.
    """
    logging.raiseExceptions = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(_json() if log_format == "json" else _logfmt()))
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
    for name in ("apscheduler", "asyncio"):
        logging.getLogger(name).setLevel(logging.INFO if level == "debug" else logging.ERROR)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # below that it has lines that every client can cause


def printable(text: str) -> str:
    """Return text with all that a terminal or a log viewer might act upon written as JSON's escapes.

    These are control characters, line separators and marks of writing direction. A lone surrogate is no text at all, so
    that JSON readers may refuse its escape: its backslash is doubled.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return ("\\" if "\ud800" <= character <= "\udfff" else "") + json.dumps(character).strip('"')


class _Lines(logging.Formatter):
    """Prepares a copy of a record for another formatter and makes its line safe to show."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        formatter.converter = time.gmtime
        formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        record.levelname = _NAMES.get(record.levelno, record.levelname.lower())
        record.name = record.name.removeprefix("aes_exporter.")
        return printable(self._formatter.format(record))


def _logfmt() -> logging.Formatter:
    return Logfmter(keys=[*_KEYS], mapping=_KEYS)


def _json() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415  few ask for JSON, and all would pay for the import

    names = {attribute: key for key, attribute in _KEYS.items()} | {"message": "msg"}
    return JsonFormatter(
        " ".join(f"%({attribute})s" for attribute in names), rename_fields=names, json_ensure_ascii=False
    )
