"""How values are written: text -> value, or a ValueError that says what was expected and what came instead.

In: the text of one value from a flag or an environment variable. Nothing here knows which option it belongs to.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECOND = 1_000_000_000  # in nanoseconds, as all durations here

_UNITS = {  # in the order in which a duration names them
    "y": 365 * 86400 * SECOND,
    "w": 7 * 86400 * SECOND,
    "d": 86400 * SECOND,
    "h": 3600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 1_000_000,
    "us": 1_000,
}
_DURATION = re.compile("0|(?=.)" + "".join(rf"(?:[0-9]{{1,9}}{unit})?" for unit in _UNITS))
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([\w.-]*)):([0-9]{1,5})", re.ASCII)
# Of what RFC 3986 allows: no "%", which servers undo; no "//" or dot segments, which clients take for something else.
_TELEMETRY_PATH = re.compile(r"(?!/-/)(?:/(?!\.\.?(?:/|$))[\w.~!$&'()*+,;=:@-]+)+/?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen: host "" is every address of this host, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def shown(text: str) -> str:
    """Return text from outside in quotes: on one line, without control characters, not too long."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def duration(low: str, high: str) -> Callable[[str], int]:
    """Return a parser of durations as Prometheus writes them, from `low` to `high`; its values are in nanoseconds."""

    def parse(text: str) -> int:
        if not _DURATION.fullmatch(text) or not _nanoseconds(low) <= _nanoseconds(text) <= _nanoseconds(high):
            raise _refusal(f"a duration with its unit, from {low} to {high}", text)
        return _nanoseconds(text)

    return parse


def whole(low: int, high: int, step: int = 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high` that are multiples of `step`."""
    kind = "whole number" if step == 1 else f"multiple of {step}"

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch("-?[0-9]{1,9}", text) else low - 1
        if not low <= value <= high or value % step:
            raise _refusal(f"a {kind} from {low} to {high}", text)
        return value

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser that lets only `choices` through."""
    expected = ", ".join(choices[:-1]) + " or " + choices[-1]

    def parse(text: str) -> str:
        if text not in choices:
            raise _refusal(expected, text)
        return text

    return parse


def switch(text: str) -> bool:
    return one_of("true", "false")(text) == "true"


def address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if not match or int(match[3]) > 65535 or (match[1] and not _is_ipv6(match[1])):
        raise _refusal("host:port, :port or [IPv6 address]:port", text)
    return Address(host=match[1] or match[2], port=int(match[3]))


def telemetry_path(text: str) -> str:
    if not _TELEMETRY_PATH.fullmatch(text):
        raise _refusal("a path such as /metrics in plain ASCII, neither / nor under /-/", text)
    return text


def library(text: str) -> str:
    if not text or not text.isprintable():
        raise _refusal("a name such as libcrypto.so.3 or a path", text)
    return text


def file(text: str) -> Path:
    """Return the file to read; whether it can be read shows when it is."""
    if not text or not text.isprintable():
        raise _refusal("the path of a file", text)
    return Path(text)


def output(text: str) -> Path | None:
    """Return the file to write, None for "-". OSError refuses now what would otherwise fail after all the measuring."""
    if text == "-":
        return None
    path = Path(text)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.is_file() or not path.exists():  # it will be replaced, for which the directory must take another file
        tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    return path


def _nanoseconds(duration: str) -> int:
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall("([0-9]+)([a-z]+)", duration))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _refusal(expected: str, text: str) -> ValueError:
    return ValueError(f"expected {expected}, got {shown(text)}")
