"""Which files this process really has mapped, by /proc/self/maps; "" where the system does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MAPS = "/proc/self/maps"
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+)(?: \S+){4} +(\S.*)")  # permissions, offset, device, inode; the file


def mapped_file(address: int, maps: str = _MAPS) -> str:
    """Return the path of the file mapped at an address."""
    return next((file for start, end, file in _mappings(maps) if start <= address < end), "")


def mapped_library(name: str, maps: str = _MAPS) -> str:
    """Return the path of the first mapped file whose own name begins with `name`."""
    return next((file for _, _, file in _mappings(maps) if file.rpartition("/")[2].startswith(name)), "")


def _mappings(maps: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and file of each mapping that has a file."""
    try:
        with open(maps, errors="replace") as file:  # noqa: PTH123 (pathlib would take each worker 8 ms of its start)
            lines = file.read().split("\n")
    except OSError:
        return
    for line in lines:
        if match := _MAPPING.match(line):
            yield int(match[1], 16), int(match[2], 16), match[3]
