"""Which of OpenSSL's AES codes a cell runs: a name from the capability words, the mode, the direction and the length.

Pure rules, read from the sources of OpenSSL 3.0 to 4.0 (aes_platform.h, cipher_aes_hw.c, build.info and the assembly
itself). Other libraries and OpenSSL 1.1 print no words, and later releases may run other code: all these are UNKNOWN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aes_exporter.capabilities import flags_of, has_aes
from aes_exporter.vocabulary import Cell

UNKNOWN = "unknown"

_OLDEST, _NEWEST = (3, 0), (4, 0)
_BITSLICED_BYTES = 128
"""Shorter calls of the bit-sliced code, which needs eight AES blocks at a time, end in the table code."""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codes:
    """The codes of an architecture, in the order of preference: AES instructions, vector instructions, tables.

    `vector` is the CPU flag that the vector code needs, `bitsliced` the first release that has bit-sliced CBC decrypt.
    """

    instructions: str
    vector: str
    vector_code: str = "vpaes"
    bitsliced: Version | None = None


_CODES: Mapping[str, _Codes] = {
    "x86_64": _Codes(instructions="aesni", vector="ssse3", bitsliced=(3, 0)),
    "x86": _Codes(instructions="aesni", vector="ssse3"),
    "aarch64": _Codes(instructions="armv8", vector="asimd", bitsliced=(3, 1)),
    "arm": _Codes(instructions="armv8", vector="neon", vector_code="table", bitsliced=(3, 0)),
    "ppc64": _Codes(instructions="power8", vector="altivec"),
}
_NARROW = {"x86_64": "x86", "aarch64": "arm", "ppc64": "ppc"}
"""What a 32-bit process under a 64-bit kernel is made for."""


def implementation(cell: Cell, words: tuple[int, ...] | None, machine: str, library: str, *, bits: int = 64) -> str:
    """Return the name of the AES code that a cell runs: "aesni", "vpaes", "bsaes", "table", "armv8", "power8", UNKNOWN.

    `words` are those read back from the library called `library` ("OpenSSL 3.0.19"), None where it tells none;
    `machine` is the kernel's architecture and `bits` the width of the process.
    """
    machine = _NARROW.get(machine, machine) if bits == 32 else machine
    codes, version = _CODES.get(machine), _version(library)
    if codes is None or version is None or words is None:
        return UNKNOWN
    if (machine, version) == ("x86", (3, 0, 0)):
        return "table"  # all other code was left out of that build by mistake: openssl/openssl#16858
    if has_aes(words, machine):
        return codes.instructions
    return _software(cell, codes, version) if codes.vector in flags_of(words, machine) else "table"


def _version(library: str) -> Version | None:
    match = re.match(r"OpenSSL (\d+)\.(\d+)\.(\d+)", library)
    version = tuple(map(int, match.groups())) if match else ()
    return version if _OLDEST <= version[:2] <= _NEWEST else None


def _software(cell: Cell, codes: _Codes, version: Version) -> str:
    cbc_decrypt = (cell.algorithm, cell.operation) == ("aes-128-cbc", "decrypt")
    if not cbc_decrypt or codes.bitsliced is None or version < codes.bitsliced:
        return codes.vector_code
    return "bsaes" if cell.block_size >= _BITSLICED_BYTES else "table"
