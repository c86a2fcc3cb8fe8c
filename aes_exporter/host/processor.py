"""What /proc/cpuinfo tells of the CPU, in every architecture's own way of telling it.

Text and what `uname -m` prints in; a Host with identity and flags out. Pure, and nothing raises: what is not told is ""
or None, and "not told" never turns into "absent". Reading files is the business of host.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aes_exporter import capabilities
from aes_exporter.host import arm_cores
from aes_exporter.model import Host

_Fields = Mapping[str, list[str]]

_LONGEST = 200  # characters; the names become label values, and a longer one is no name

_MIDR = re.compile(
    "".join(
        rf"^{key}[ \t]*:[ \t]*({value})[ \t\r]*\n"
        for key, value in (
            ("CPU implementer", "0x[0-9a-f]{1,8}"),
            ("CPU architecture", r"\S{1,40}"),
            ("CPU variant", "0x[0-9a-f]{1,8}"),
            ("CPU part", "0x[0-9a-f]{1,8}"),
            ("CPU revision", r"[0-9]{1,8}"),
        )
    ),
    re.MULTILINE | re.IGNORECASE | re.ASCII,
)
_PVR = re.compile(r"([0-9.]+) \(pvr ([0-9a-f]+) [0-9a-f]+\)")

# Machine types of IBM Z; vendor ids and device-tree prefixes of RISC-V.
_MAINFRAMES: dict[str, str] = dict(
    re.findall(
        r"(\d{4}) ([^,]+)",
        "2097 z10 EC, 2098 z10 BC, 2817 z196, 2818 z114, 2827 zEC12, 2828 zBC12, 2964 z13, 2965 z13s, 3906 z14, "
        "3907 z14 ZR1, 8561 z15, 8562 z15 T02, 3931 z16, 3932 z16 A02, 9175 z17",
    )
)
_RISCV = {
    "0x31e": "Andes",
    "0x489": "SiFive",
    "sifive": "SiFive",
    "0x5b7": "T-Head",
    "thead": "T-Head",
    "0x710": "SpacemiT",
}


def as_label(text: str) -> str:
    """Return text that is fit for a label: printable, blanks collapsed, at most 200 characters, "" for "unknown"."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: 10 * _LONGEST]).split())[:_LONGEST].rstrip()
    return "" if clean.lower() == "unknown" else clean


def _joined(values: Iterable[str]) -> str:
    """Join what differs from CPU to CPU, as on big.LITTLE: "Cortex-A7 + Cortex-A15"."""
    return as_label(" + ".join(dict.fromkeys(filter(None, map(as_label, values)))))


def _fields(text: str) -> dict[str, list[str]]:
    """Return the distinct values of each key, keys in lower case.

    A line that is not ended by a newline may be cut in the middle, so it does not count. Equal lines are dropped
    unparsed, which makes the text of a thousand CPUs cost a third.
    """
    fields: dict[str, list[str]] = {}
    for line in dict.fromkeys(text.split("\n")[:-1]):
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), []).append(value.strip())
    return fields


def _value(fields: _Fields, key: str) -> str:
    return _joined(fields.get(key, ()))


def _words(fields: _Fields, key: str) -> list[set[str]]:
    return [set(value.split()) for value in fields.get(key, ())]


def _shared(lists: list[set[str]], architecture: str) -> frozenset[str]:
    """Return the crypto-relevant flags that are in all lists."""
    known = capabilities.ARCHITECTURES[architecture].flags
    return frozenset(flag for flag in known if all(flag in words for words in lists))


def _flags(fields: _Fields, key: str, architecture: str) -> frozenset[str] | None:
    """Return the crypto-relevant flags that all CPUs list. An empty list comes from a kernel that does not tell."""
    told = [words for words in _words(fields, key) if words]
    return _shared(told, architecture) if told else None


def _x86(fields: _Fields, _text: str, architecture: str) -> Host:
    return Host(
        architecture=architecture,
        flags=_flags(fields, "flags", architecture),
        brand=_value(fields, "model name"),
        vendor=_value(fields, "vendor_id"),
        family=_value(fields, "cpu family"),
        model=_value(fields, "model"),
        stepping=_value(fields, "stepping"),
    )


def _arm(fields: _Fields, text: str, architecture: str) -> Host:
    cores = list(dict.fromkeys(_MIDR.findall(text)))
    ids = [(int(implementer, 16), int(part, 16)) for implementer, _, _, part, _ in cores]
    named = any(arm_cores.name(*core) for core in ids)
    return Host(
        architecture=architecture,
        flags=_flags(fields, "features", architecture),
        brand=_joined(arm_cores.name(*core) or hex(core[1]) for core in ids) if named else _value(fields, "model name"),
        vendor=_joined(arm_cores.vendor(implementer) for implementer, _ in ids),
        family=_joined(core[1] for core in cores),
        model=_joined(core[3] for core in cores),
        stepping=_joined(f"r{int(variant, 16)}p{revision}" for _, _, variant, _, revision in cores),
    )


def _ppc64(fields: _Fields, _text: str, architecture: str) -> Host:
    """Leave the flags to the auxiliary vector: the text tells of AltiVec and of nothing else."""
    brand = _joined(value.partition(",")[0] for value in fields["cpu"])
    versions = [match.groups() for value in fields.get("revision", ()) if (match := _PVR.match(value))]
    return Host(
        architecture=architecture,
        brand=brand,
        vendor="IBM" if brand.startswith("POWER") else "",
        model=_joined(model for _, model in versions),
        stepping=_joined(stepping for stepping, _ in versions),
    )


def _s390x(fields: _Fields, _text: str, architecture: str) -> Host:
    machines = [
        value.partition("machine = ")[2]
        for key, values in fields.items()
        if key.startswith("processor ")
        for value in values
    ]
    return Host(
        architecture=architecture,
        flags=_flags(fields, "features", architecture),
        brand=_joined(f"IBM {_MAINFRAMES[machine]}" for machine in machines if machine in _MAINFRAMES),
        vendor=_value(fields, "vendor_id"),
        model=_joined(machines),
    )


def _riscv64(fields: _Fields, _text: str, architecture: str) -> Host:
    """Look for multi-letter extensions: a text without any is by a kernel that prints none, whatever there is."""
    harts = [set(isa.split("_")[1:]) for key in ("isa", "hart isa") for isa in fields.get(key, ())]
    uarch = _value(fields, "uarch")
    prefix = uarch.partition(",")[0]
    return Host(
        architecture=architecture,
        flags=_shared(harts, architecture) if any(harts) else None,
        brand=_value(fields, "model name") or uarch,
        vendor=_RISCV.get(_value(fields, "mvendorid"), _RISCV.get(prefix, prefix)),
        family=_value(fields, "marchid"),
        model=_value(fields, "mimpid"),
    )


def _loongarch64(fields: _Fields, _text: str, architecture: str) -> Host:
    family = _value(fields, "cpu family")
    return Host(
        architecture=architecture,
        flags=_flags(fields, "features", architecture),
        brand=_value(fields, "model name"),
        vendor=family.partition("-")[0],
        family=family,
        stepping=_value(fields, "cpu revision"),
    )


def _mips(fields: _Fields, _text: str, architecture: str) -> Host:
    return Host(architecture=architecture, brand=_value(fields, "cpu model"), model=_value(fields, "system type"))


def _is_arm(fields: _Fields, words: set[str]) -> bool:
    """Tell 32-bit from 64-bit ARM by the words; some Android kernels print both kinds, and serve both."""
    features = _words(fields, "features")
    return "cpu implementer" in fields and (not features or any(words & listed for listed in features))


def _is_s390x(fields: _Fields) -> bool:
    return "IBM/S390" in fields.get("vendor_id", ())


def _has_isa(fields: _Fields, prefix: str) -> bool:
    return any(isa.startswith(prefix) for isa in fields.get("isa", ()))


def _is_x86(fields: _Fields) -> bool:
    return "vendor_id" in fields and not _is_s390x(fields)


class _Form(NamedTuple):
    """How to tell that an architecture's kernel wrote a text, and how to read it."""

    recognises: Callable[[_Fields], bool]
    read: Callable[[_Fields, str, str], Host]


_FORMS: Mapping[str, _Form] = {
    "x86_64": _Form(_is_x86, _x86),
    "x86": _Form(_is_x86, _x86),
    "aarch64": _Form(lambda fields: _is_arm(fields, {"fp", "asimd"}), _arm),
    "arm": _Form(lambda fields: _is_arm(fields, {"half", "thumb", "swp", "vfp", "neon"}), _arm),
    "ppc64": _Form(lambda fields: "cpu" in fields, _ppc64),
    "s390x": _Form(_is_s390x, _s390x),
    "riscv64": _Form(lambda fields: _has_isa(fields, "rv64"), _riscv64),
    "loongarch64": _Form(lambda fields: _has_isa(fields, "loongarch"), _loongarch64),
    "mips": _Form(lambda fields: "cpu model" in fields, _mips),
    "mips64": _Form(lambda fields: "cpu model" in fields, _mips),
}


def parse_cpuinfo(text: str, machine: str) -> Host:
    """Return the identity of the CPU and the crypto-relevant flags that all CPUs share, read from /proc/cpuinfo.

    Under user-mode emulation the text is that of the real host, of another architecture: it tells nothing then.
    """
    architecture = capabilities.canonical(machine)
    fields = _fields(text)
    form = _FORMS.get(architecture)
    if form is None or not form.recognises(fields):
        return Host(architecture=architecture)
    return form.read(fields, text, architecture)


def foreign(text: str, machine: str) -> bool:
    """Return whether the kernel of another architecture than `machine` wrote this text."""
    fields = _fields(text)
    writers = {architecture for architecture, form in _FORMS.items() if form.recognises(fields)}
    return bool(writers) and capabilities.canonical(machine) not in writers
