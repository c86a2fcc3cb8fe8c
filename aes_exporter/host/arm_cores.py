"""Names of ARM cores: the numbers of the MIDR register in, names that a person would recognise out.

ARM kernels print the numbers only. Pure; knows nothing of files or of the rest of the exporter.
"""

from __future__ import annotations

# Implementer, then its parts, in hexadecimal; names as in Linux' asm/cputype.h and in lscpu of util-linux.
_TABLE = """
41 ARM: 920 ARM920, 926 ARM926, b02 ARM11 MPCore, b36 ARM1136, b56 ARM1156, b76 ARM1176, c05 Cortex-A5, c07 Cortex-A7,
   c08 Cortex-A8, c09 Cortex-A9, c0d Cortex-A17, c0e Cortex-A17, c0f Cortex-A15, d01 Cortex-A32, d02 Cortex-A34,
   d03 Cortex-A53, d04 Cortex-A35, d05 Cortex-A55, d06 Cortex-A65, d07 Cortex-A57, d08 Cortex-A72, d09 Cortex-A73,
   d0a Cortex-A75, d0b Cortex-A76, d0c Neoverse-N1, d0d Cortex-A77, d0e Cortex-A76AE, d40 Neoverse-V1, d41 Cortex-A78,
   d42 Cortex-A78AE, d43 Cortex-A65AE, d44 Cortex-X1, d46 Cortex-A510, d47 Cortex-A710, d48 Cortex-X2, d49 Neoverse-N2,
   d4a Neoverse-E1, d4b Cortex-A78C, d4c Cortex-X1C, d4d Cortex-A715, d4e Cortex-X3, d4f Neoverse-V2, d80 Cortex-A520,
   d81 Cortex-A720, d82 Cortex-X4, d83 Neoverse-V3AE, d84 Neoverse-V3, d85 Cortex-X925, d87 Cortex-A725,
   d88 Cortex-A520AE, d89 Cortex-A720AE, d8a C1-Nano, d8b C1-Pro, d8c C1-Ultra, d8e Neoverse-N3, d8f Cortex-A320,
   d90 C1-Premium;
42 Broadcom: 00f Brahma-B15, 100 Brahma-B53, 516 ThunderX2;
43 Cavium: 0a0 ThunderX, 0a1 ThunderX-88XX, 0a2 ThunderX-81XX, 0a3 ThunderX-83XX, 0af ThunderX2-99xx, 0b0 OcteonTX2,
   0b1 OcteonTX2-98XX, 0b2 OcteonTX2-96XX, 0b3 OcteonTX2-95XX, 0b4 OcteonTX2-95XXN, 0b5 OcteonTX2-95XXMM,
   0b6 OcteonTX2-95XXO, 0b8 ThunderX3-T110;
46 Fujitsu: 001 A64FX, 003 MONAKA;
48 HiSilicon: d01 Kunpeng-920, d40 Cortex-A76;
4e NVIDIA: 000 Denver, 003 Denver 2, 004 Carmel;
50 APM: 000 X-Gene;
51 Qualcomm: 001 Oryon, 04d Krait, 06f Krait, 201 Kryo, 205 Kryo, 211 Kryo, 800 Kryo-2XX-Gold, 801 Kryo-2XX-Silver,
   802 Kryo-3XX-Gold, 803 Kryo-3XX-Silver, 804 Kryo-4XX-Gold, 805 Kryo-4XX-Silver, c00 Falkor, c01 Saphira;
53 Samsung: 001 Exynos-M1, 002 Exynos-M3, 003 Exynos-M4, 004 Exynos-M5;
56 Marvell: 131 Feroceon-88FR131, 581 PJ4, 584 PJ4B-MP;
61 Apple: 000 Apple silicon, 020 Icestorm-A14, 021 Firestorm-A14, 022 Icestorm-M1, 023 Firestorm-M1,
   024 Icestorm-M1-Pro, 025 Firestorm-M1-Pro, 028 Icestorm-M1-Max, 029 Firestorm-M1-Max, 030 Blizzard-A15,
   031 Avalanche-A15, 032 Blizzard-M2, 033 Avalanche-M2, 034 Blizzard-M2-Pro, 035 Avalanche-M2-Pro,
   038 Blizzard-M2-Max, 039 Avalanche-M2-Max;
6d Microsoft: d49 Azure-Cobalt-100;
70 Phytium: 660 FTC660, 661 FTC661, 662 FTC662, 663 FTC663;
c0 Ampere: ac3 Ampere-1, ac4 Ampere-1a, ac5 Ampere-1b
"""


def _numbered(text: str) -> tuple[int, str]:
    number, _, name = text.strip().partition(" ")
    return int(number, 16), name


_VENDORS: dict[int, str] = {}
_CORES: dict[tuple[int, int], str] = {}
for _line in _TABLE.split(";"):
    _head, _, _parts = _line.partition(":")
    _implementer, _vendor = _numbered(_head)
    _VENDORS[_implementer] = _vendor
    _CORES.update({(_implementer, part): name for part, name in map(_numbered, _parts.split(","))})


def vendor(implementer: int) -> str:
    """Return the name of an implementer, "" for an unknown one."""
    return _VENDORS.get(implementer, "")


def name(implementer: int, part: int) -> str:
    """Return the name of a core such as "Cortex-A72", "" for an unknown one."""
    return _CORES.get((implementer, part), "")
