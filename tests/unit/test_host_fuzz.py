"""Texts that no kernel printed: nothing raises, nothing unfit gets out, and nothing untold turns into "absent"."""

from __future__ import annotations

import struct
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter.capabilities import ARCHITECTURES, Architecture
from aes_exporter.host import hypervisor
from aes_exporter.host.auxv import parse_auxv
from aes_exporter.host.kernel_crypto import parse_crypto
from aes_exporter.host.processor import as_label, foreign, parse_cpuinfo
from aes_exporter.model import Host

PROC = Path(__file__).parents[1] / "data" / "proc"
SAMPLES = [path.read_text() for path in sorted(PROC.glob("cpuinfo-*.txt"))]
MACHINES = st.sampled_from([*ARCHITECTURES, "i686", "armv7l", "ppc64le", "mips", "mips64", "sparc64", ""])

KEYS = sorted({line.partition(":")[0] for sample in SAMPLES for line in sample.splitlines()} | {"hart isa", "uarch"})
WORDS = sorted({flag for each in ARCHITECTURES.values() for flag in each.flags} | {"fpu", "half", "fp", "unknown"})
VALUES = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=4).map(lambda words: "_".join(["rv64imafdc", *words])),
    st.sampled_from(
        [
            "0x41",
            "0xd03",
            "8",
            "AArch64",
            "IBM/S390",
            "loongarch64",
            "GenuineIntel",
            "machine = 2827",
            "2.1 (pvr 004b 0201)",
        ]
    ),
    st.text(max_size=30),
)
LINES = st.tuples(st.sampled_from(KEYS), st.sampled_from(["\t: ", ":", " : "]), VALUES).map("".join)
CPUINFO = st.one_of(
    st.text(max_size=300),
    st.binary(max_size=300).map(lambda data: data.decode(errors="replace")),
    st.lists(st.one_of(LINES, st.just("")), max_size=40).map("\n".join),
)


def fit(text: str) -> bool:
    """Whether a string may become a label value."""
    return as_label(text) == text


def check(host: Host) -> None:
    known = ARCHITECTURES.get(host.architecture, Architecture()).flags
    names = [
        getattr(host, field.name)
        for field in fields(host)
        if field.name not in ("architecture", "flags", "kernel_drivers", "masks")
    ]
    assert all(fit(name) for name in names)
    assert host.flags is None or host.flags <= set(known)


@given(CPUINFO, MACHINES)
def test_any_cpuinfo_gives_a_sound_host(text: str, machine: str) -> None:
    """Whatever the text, the strings are fit for labels and the flags are from the closed list."""
    check(parse_cpuinfo(text, machine))
    assert foreign(text, machine) in (True, False)


# machine -> a line that shows whose text it is, the start of a line of flags, what separates them
TOLD = {
    "x86_64": ("vendor_id\t: GenuineIntel\n", "flags\t\t: ", " "),
    "aarch64": ("CPU implementer\t: 0x41\n", "Features\t: fp ", " "),
    "armv7l": ("CPU implementer\t: 0x41\n", "Features\t: half ", " "),
    "s390x": ("vendor_id       : IBM/S390\n", "features\t: ", " "),
    "riscv64": ("isa\t\t: rv64imafdc_zkne_zknd_zvkned\n", "hart isa\t: rv64imafdc_", "_"),
    "loongarch64": ("isa\t\t\t: loongarch64\n", "features\t\t: ", " "),
}


@given(st.sampled_from(sorted(TOLD)), st.lists(st.lists(st.sampled_from(WORDS)), min_size=1, max_size=4), st.data())
def test_a_prefix_never_claims_that_a_flag_is_absent(machine: str, cpus: list[list[str]], data: st.DataObject) -> None:
    """Cut anywhere, a text tells at least the flags of the whole, or does not tell."""
    mark, start, separator = TOLD[machine]
    text = "".join(f"{mark}{start}{separator.join(flags)}\n\n" for flags in cpus)
    whole = parse_cpuinfo(text, machine).flags or frozenset()
    prefix = parse_cpuinfo(text[: data.draw(st.integers(0, len(text)))], machine).flags

    assert prefix is None or prefix >= whole


@pytest.mark.parametrize("sample", SAMPLES)
@given(st.data())
def test_a_damaged_sample_gives_a_sound_host(sample: str, data: st.DataObject) -> None:
    """A real text with a piece replaced by junk still gives a sound host."""
    begin = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(begin, len(sample)))

    check(parse_cpuinfo(sample[:begin] + data.draw(st.text(max_size=20)) + sample[end:], data.draw(MACHINES)))


NAMES = st.one_of(st.sampled_from(["cbc(aes)", "ecb(aes)", "gcm(aes)", "aes"]), st.text(max_size=10))
BLOCKS = st.fixed_dictionaries(
    {"name": NAMES, "driver": st.one_of(st.sampled_from(["cbc-aes-aesni", "cbc(aes-generic)"]), st.text(max_size=300))},
    optional={
        "priority": st.one_of(st.integers().map(str), st.text(max_size=5)),
        "selftest": st.sampled_from(["passed", "unknown", ""]),
        "internal": st.sampled_from(["yes", "no", ""]),
    },
).map(lambda block: "".join(f"{key:12} : {value}\n" for key, value in block.items()) + "\n")
CRYPTO = st.one_of(st.text(max_size=300), st.lists(BLOCKS, max_size=10).map("".join))


@given(CRYPTO, st.booleans())
def test_any_crypto_text_gives_sound_drivers(text: str, library: bool) -> None:
    """Whatever the text, each mode is there at most once and the drivers' names are fit for labels."""
    drivers = parse_crypto(text, library=library)

    assert len({each.algorithm for each in drivers}) == len(drivers)
    assert all(each.driver and fit(each.driver) for each in drivers)


@given(st.lists(BLOCKS, max_size=10), st.data())
def test_more_blocks_never_take_a_mode_away(blocks: list[str], data: st.DataObject) -> None:
    """Cut anywhere, the text names no mode that the whole does not name."""
    text = "".join(blocks)
    prefix = text[: data.draw(st.integers(0, len(text)))]

    assert {each.algorithm for each in parse_crypto(prefix)} <= {each.algorithm for each in parse_crypto(text)}


@given(st.binary(max_size=200), st.sampled_from([*ARCHITECTURES, "made-up"]))
def test_any_auxiliary_vector_gives_known_flags_or_none(data: bytes, architecture: str) -> None:
    """Whatever the bytes, the flags are from the closed list."""
    found = parse_auxv(data + struct.pack("NN", 16, 0), architecture)

    assert found is None or found <= set(ARCHITECTURES[architecture].flags)


@given(st.text(max_size=50), st.text(max_size=50), st.text(max_size=300), st.text(max_size=300), st.text(max_size=20))
def test_any_firmware_gives_a_fit_name(vendor: str, product: str, kind: str, sysinfo: str, cpuid: str) -> None:
    """Whatever the files hold, the hypervisor's name is fit for a label."""
    name = hypervisor.detect(
        sys_vendor=vendor, product_name=product, sys_hypervisor_type=kind, sysinfo=f"VM00 Control Program: {sysinfo}\n"
    )

    assert fit(name)
    assert fit(hypervisor.refine(name, cpuid_vendor=cpuid))


@given(st.text(max_size=1000))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    """What is clean stays as it is."""
    clean = as_label(text)

    assert as_label(clean) == clean
    assert clean.isprintable()
    assert len(clean) <= 200
