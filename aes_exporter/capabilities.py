"""The capability words of a libcrypto: which variable sets them, which bit is which CPU flag.

Input: the line a library prints of itself and an architecture; output: words and flag names as the kernel spells them.
The bits are those of OpenSSL's OPENSSL_ia32cap(3) for x86, and of its crypto/arm_arch.h and include/crypto/ppc_arch.h.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_ALIASES = {"amd64": "x86_64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The crypto-relevant CPU flags of an architecture and where its capability words show them.

    `flags` is the closed list; `bits` maps a flag to (word, bit) for those that the words show; `aes` names the flag of
    the AES instructions; `variable` is libcrypto's capability variable ("" where it has none).
    """

    flags: tuple[str, ...] = ()
    aes: str = ""
    variable: str = ""
    bits: Mapping[str, tuple[int, int]] = field(default_factory=dict)


_X86 = Architecture(
    flags=("ace", "ace_en", "aes", "avx", "avx2", "avx512f", "pclmulqdq", "sha_ni", "ssse3", "vaes", "vpclmulqdq"),
    aes="aes",
    variable="OPENSSL_ia32cap",
    bits={
        "pclmulqdq": (0, 33),
        "ssse3": (0, 41),
        "aes": (0, 57),
        "avx": (0, 60),
        "avx2": (1, 5),
        "avx512f": (1, 16),
        "sha_ni": (1, 29),
        "vaes": (1, 41),
        "vpclmulqdq": (1, 42),
    },
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": _X86,
    "x86": _X86,
    "aarch64": Architecture(
        flags=("aes", "asimd", "pmull", "sha1", "sha2", "sha512"),
        aes="aes",
        variable="OPENSSL_armcap",
        bits={"asimd": (0, 0), "aes": (0, 2), "sha1": (0, 3), "sha2": (0, 4), "pmull": (0, 5), "sha512": (0, 6)},
    ),
    "arm": Architecture(
        flags=("aes", "neon", "pmull", "sha1", "sha2"),
        aes="aes",
        variable="OPENSSL_armcap",
        bits={"neon": (0, 0), "aes": (0, 2), "sha1": (0, 3), "sha2": (0, 4), "pmull": (0, 5)},
    ),
    "ppc64": Architecture(
        flags=("altivec", "vcrypto"),
        aes="vcrypto",
        variable="OPENSSL_ppccap",
        bits={"altivec": (0, 1), "vcrypto": (0, 2)},
    ),
    "s390x": Architecture(flags=("msa",), variable="OPENSSL_s390xcap"),
    "riscv64": Architecture(flags=("zknd", "zkne", "zvkned"), variable="OPENSSL_riscvcap"),
    "loongarch64": Architecture(flags=("lasx", "lsx")),
}

VARIABLES = (
    "OPENSSL_armcap",
    "OPENSSL_ia32cap",
    "OPENSSL_ppccap",
    "OPENSSL_riscvcap",
    "OPENSSL_s390xcap",
    "OPENSSL_sparcv9cap",
)

_WORDS = re.compile(r"\bOPENSSL_[a-z0-9]+cap=(0x[0-9a-f]{1,16}(?::0x[0-9a-f]{1,16}){0,9})(?![0-9a-z:])", re.IGNORECASE)


def canonical(machine: str) -> str:
    """Return this project's name for what `uname -m` prints, which is that name itself where the project knows none."""
    name = machine.lower()
    if name.startswith("armv"):
        return "arm"
    if name.startswith("ppc64"):
        return "ppc64"
    return _ALIASES.get(name, name)


def architecture() -> str:
    """Return the architecture of the running kernel, in this project's names."""
    return canonical(platform.machine())


def parse_words(text: str | None) -> tuple[int, ...] | None:
    """Return the capability words in a line such as "CPUINFO: OPENSSL_ia32cap=0x7ffa...:0x1c2f...", None without any.

    What follows the words is ignored: the library prints " env:..." by asking for the variable when it prints, not when
    it was loaded, so that part proves nothing.
    """
    match = _WORDS.search(text or "")
    return tuple(int(word, 16) for word in match[1].split(":")) if match else None


def flags_of(words: tuple[int, ...], machine: str) -> frozenset[str]:
    """Return the crypto-relevant flags that are set in capability words of architecture `machine`."""
    bits = ARCHITECTURES.get(machine, Architecture()).bits
    return frozenset(flag for flag, (word, bit) in bits.items() if word < len(words) and words[word] >> bit & 1)


def has_aes(words: tuple[int, ...], machine: str) -> bool:
    """Return whether the words let the library use AES instructions."""
    return ARCHITECTURES.get(machine, Architecture()).aes in flags_of(words, machine)


def known_without_aes(flags: frozenset[str] | None, machine: str) -> bool:
    """Return whether a host's flags are known and the flag of the AES instructions, if there is one, not among them."""
    aes = ARCHITECTURES.get(machine, Architecture()).aes
    return bool(aes) and flags is not None and aes not in flags
