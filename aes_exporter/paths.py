"""The table of paths: name -> environment of the worker per architecture -> what must be true if it worked.

A path is set by the environment a worker is started with, because libcrypto reads its capability variable once, when
it is loaded. Pure tables and functions; starting a worker is the business of workers.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from aes_exporter import capabilities
from aes_exporter.model import MASKED_PATHS, Exemption

_INHERITED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LD_LIBRARY_PATH")

# Each word that is left out would be zeroed, hence the trailing "~0"s; older versions ignore the extra words.
_X86_MASKS = {
    "software": "~0x200000200000000:~0:~0:~0:~0",  # bits 57 and 33: AES-NI and PCLMULQDQ
}


def environment(path: str, machine: str, inherited: Mapping[str, str]) -> dict[str, str] | Exemption:
    """Return the whole environment of a worker on `path`, or why there is no such path on architecture `machine`.

    It is an allow-list: no capability variable and no Python setting of the daemon's own environment gets through.
    """
    child = {name: inherited[name] for name in _INHERITED if name in inherited}
    if path == "hardware":
        return child
    if path in _X86_MASKS and machine in ("x86_64", "x86"):
        return {**child, "OPENSSL_ia32cap": _X86_MASKS[path]}
    return Exemption.MASK_UNSUPPORTED


def cpu_flags(
    path: str, machine: str, words: tuple[int, ...] | None, host_flags: frozenset[str] | None
) -> tuple[str, ...]:
    """Return the crypto-relevant flags in effect on a path, sorted.

    They are read from the library's words; where those cannot be read, they are the host's less the masked ones.
    """
    if words is not None:
        return tuple(sorted(capabilities.flags_of(words, machine)))
    masked = {"aes", "pclmulqdq"} if path in MASKED_PATHS else set()
    return tuple(sorted((host_flags or frozenset()) - masked))


def effective(path: str, words: tuple[int, ...], machine: str) -> bool:
    """Return whether capability words read back from a worker are what its path asks for."""
    return capabilities.has_aes(words, machine) != (path in MASKED_PATHS)
