"""The crypto-relevant CPU flags in the auxiliary vector, which the kernel hands to every process.

The bytes of /proc/self/auxv and an architecture in, flags out. Pure, and nothing raises. It is the only source on POWER
and the second one elsewhere; x86 is left out, because its vector does not show AES.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

# Flag -> (type of the entry, bit), from the kernel's asm/hwcap.h and, for POWER, asm/cputable.h.
_HWCAP, _HWCAP2 = 16, 26
_HWCAP_BITS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "aarch64": {
        "asimd": (_HWCAP, 1),
        "aes": (_HWCAP, 3),
        "pmull": (_HWCAP, 4),
        "sha1": (_HWCAP, 5),
        "sha2": (_HWCAP, 6),
        "sha512": (_HWCAP, 21),
    },
    "arm": {
        "neon": (_HWCAP, 12),
        "aes": (_HWCAP2, 0),
        "pmull": (_HWCAP2, 1),
        "sha1": (_HWCAP2, 2),
        "sha2": (_HWCAP2, 3),
    },
    "ppc64": {"altivec": (_HWCAP, 28), "vcrypto": (_HWCAP2, 25)},
    "s390x": {"msa": (_HWCAP, 3)},
    "loongarch64": {"lsx": (_HWCAP, 4), "lasx": (_HWCAP, 5)},
}


def parse_auxv(data: bytes, architecture: str) -> frozenset[str] | None:
    """Return the crypto-relevant flags in the auxiliary vector of a process of this architecture and word size.

    None where the vector does not tell: it is cut off or empty, or its words are of another size (a 32-bit process on
    a 64-bit kernel, whose bits mean something else).
    """
    bits = _HWCAP_BITS.get(architecture, {})
    if not bits or struct.calcsize("N") != (4 if architecture == "arm" else 8):
        return None
    size = struct.calcsize("NN")
    entries = dict(struct.iter_unpack("NN", data[: len(data) // size * size]))
    if not all(kind in entries for kind, _ in bits.values()):
        return None
    return frozenset(flag for flag, (kind, bit) in bits.items() if entries[kind] >> bit & 1)
