"""The table of paths: name -> environment of the worker per architecture -> what must be true if it worked.

A path is set by the environment a worker is started with, because libcrypto reads its capability variable once, when
it is loaded. Pure tables and functions; starting a worker is the business of workers.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from aes_exporter import capabilities
from aes_exporter.model import MASKED_PATHS, Exemption

_INHERITED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LD_LIBRARY_PATH")

# On x86 "~" clears the bits of a word and keeps the rest. A word that is left out would be zeroed, hence the trailing
# "~0"s; older versions ignore those that they do not have.
_X86_MASKS = {
    "software": "~0x200000200000000:~0:~0:~0:~0",  # bits 57 and 33: AES-NI and PCLMULQDQ
    "table": "~0x200020200000000:~0:~0:~0:~0",  # and 41: SSSE3
}

# Elsewhere the value replaces the vector, so it is made from the words that the hardware worker read back.
_REPLACING: Mapping[str, Mapping[str, int]] = {
    "aarch64": {"software": 0x24, "table": 0x25},  # AES and PMULL; and NEON
    "arm": {"software": 0x24, "table": 0x25},
    "ppc64": {"software": 0x4, "table": 0x6},  # CRYPTO207; and ALTIVEC
}

# What is set where a hypervisor hides AES instructions that work.
_FORCED = {"x86_64": 1 << 57 | 1 << 33, "x86": 1 << 57 | 1 << 33, "aarch64": 0x24}


def environment(
    path: str, machine: str, inherited: Mapping[str, str], words: tuple[int, ...] | None = None
) -> dict[str, str] | Exemption:
    """Return the whole environment of a worker on `path`, or why there is no such path on architecture `machine`.

    It is an allow-list: no capability variable and no Python setting of the daemon's own environment gets through.
    `words` are those of the engine's hardware worker, None where they could not be read.
    """
    child = {name: inherited[name] for name in _INHERITED if name in inherited}
    if path == "hardware":
        return child
    value = _value(path, machine, words)
    return (
        Exemption.MASK_UNSUPPORTED if value is None else {**child, capabilities.ARCHITECTURES[machine].variable: value}
    )


def _value(path: str, machine: str, words: tuple[int, ...] | None) -> str | None:
    """Return what a path sets the capability variable to, None where that is not known."""
    if machine in ("x86_64", "x86") and path in _X86_MASKS:
        return _X86_MASKS[path]
    if words is None:
        return None
    if path == "forced" and machine in _FORCED:
        return ":".join(f"{word:#x}" for word in (words[0] | _FORCED[machine], *words[1:]))
    if path in _REPLACING.get(machine, {}):
        return f"{words[0] & ~_REPLACING[machine][path]:#x}"
    return None


def cpu_flags(
    path: str, machine: str, words: tuple[int, ...] | None, host_flags: frozenset[str] | None
) -> tuple[str, ...]:
    """Return the crypto-relevant flags in effect on a path, sorted.

    They are read from the library's words; where those cannot be read, they are the host's less the masked ones.
    """
    if words is not None:
        return tuple(sorted(capabilities.flags_of(words, machine)))
    masked = {"software": {"aes", "pclmulqdq"}, "table": {"aes", "pclmulqdq", "ssse3"}}.get(path, set())
    return tuple(sorted((host_flags or frozenset()) - masked))


def effective(path: str, words: tuple[int, ...], machine: str) -> bool:
    """Return whether capability words read back from a worker are what its path asks for."""
    return capabilities.has_aes(words, machine) != (path in MASKED_PATHS)
