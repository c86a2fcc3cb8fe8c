"""What a person would read out of /proc/cpuinfo and the auxiliary vector, for the machines in tests/data/proc."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import pytest

from aes_exporter.capabilities import ARCHITECTURES
from aes_exporter.host import arm_cores
from aes_exporter.host.auxv import parse_auxv
from aes_exporter.host.processor import as_label, foreign, parse_cpuinfo
from aes_exporter.model import Host

PROC = Path(__file__).parents[1] / "data" / "proc"

# file -> (uname -m, what a person reads)
HOSTS = {
    "aarch64-android-one-block": (
        "aarch64",
        Host(
            architecture="aarch64",
            flags=frozenset({"aes", "asimd", "pmull", "sha1", "sha2"}),
            brand="Cortex-A53",
            vendor="ARM",
            family="AArch64",
            model="0xd03",
            stepping="r0p3",
        ),
    ),
    "aarch64-no-crypto-odroid-c2": (
        "aarch64",
        Host(
            architecture="aarch64",
            flags=frozenset({"asimd"}),
            brand="Cortex-A53",
            vendor="ARM",
            family="8",
            model="0xd03",
            stepping="r0p4",
        ),
    ),
    "aarch64-thunderx": (
        "aarch64",
        Host(
            architecture="aarch64",
            flags=frozenset({"aes", "asimd", "pmull", "sha1", "sha2"}),
            brand="ThunderX-88XX",
            vendor="Cavium",
            family="8",
            model="0x0a1",
            stepping="r1p0",
        ),
    ),
    "armv7-odroid-xu3": (
        "armv7l",
        Host(
            architecture="arm",
            flags=frozenset({"neon"}),
            brand="Cortex-A7 + Cortex-A15",
            vendor="ARM",
            family="7",
            model="0xc07 + 0xc0f",
            stepping="r0p3 + r2p3",
        ),
    ),
    "loongarch64-3a5000": (
        "loongarch64",
        Host(
            architecture="loongarch64",
            flags=frozenset(),
            brand="Loongson-3A5000",
            vendor="Loongson",
            family="Loongson-64bit",
            stepping="0x10",
        ),
    ),
    "loongarch64-old-world": (
        "loongarch64",
        Host(
            architecture="loongarch64",
            flags=frozenset({"lasx", "lsx"}),
            brand="Loongson-3A5000LL",
            vendor="Loongson",
            family="Loongson-64bit",
            stepping="0x10",
        ),
    ),
    "mips-netgear-wndr3700": (
        "mips",
        Host(architecture="mips", brand="MIPS 24Kc V7.4", model="Atheros AR7161 rev 2"),
    ),
    "ppc64le-power8-kvm": (
        "ppc64le",
        Host(architecture="ppc64", brand="POWER8E (raw)", vendor="IBM", model="004b", stepping="2.1"),
    ),
    "ppc64le-power9-bare": (
        "ppc64le",
        Host(architecture="ppc64", brand="POWER9", vendor="IBM", model="004e", stepping="2.2"),
    ),
    "riscv64-sifive-u74": (
        "riscv64",
        Host(architecture="riscv64", brand="sifive,u74-mc", vendor="SiFive"),
    ),
    "s390x-z-2827": (
        "s390x",
        Host(architecture="s390x", flags=frozenset({"msa"}), brand="IBM zEC12", vendor="IBM/S390", model="2827"),
    ),
    "x86-alderlake-i7-1260p": (
        "x86_64",
        Host(
            architecture="x86_64",
            flags=frozenset({"aes", "avx", "avx2", "pclmulqdq", "sha_ni", "ssse3", "vaes", "vpclmulqdq"}),
            brand="12th Gen Intel(R) Core(TM) i7-1260P",
            vendor="GenuineIntel",
            family="6",
            model="154",
            stepping="3",
        ),
    ),
    "x86-pentium-g640-no-aes": (
        "x86_64",
        Host(
            architecture="x86_64",
            flags=frozenset({"pclmulqdq", "ssse3"}),
            brand="Intel(R) Pentium(R) CPU G640 @ 2.80GHz",
            vendor="GenuineIntel",
            family="6",
            model="42",
            stepping="7",
        ),
    ),
    "x86-via-eden-padlock": (
        "i686",
        Host(
            architecture="x86",
            flags=frozenset({"ace", "ace_en"}),
            brand="VIA Eden Processor 1200MHz",
            vendor="CentaurHauls",
            family="6",
            model="13",
            stepping="0",
        ),
    ),
}


MACHINES = ("x86_64", "aarch64", "armv7l", "ppc64le", "s390x", "riscv64", "loongarch64", "mips", "sparc64")


def sample(name: str) -> str:
    return (PROC / f"cpuinfo-{name}.txt").read_text()


def cpus(*blocks: dict[str, str]) -> str:
    """Print blocks as the kernel does."""
    return "".join("".join(f"{key}\t: {value}\n" for key, value in block.items()) + "\n" for block in blocks)


def arm(implementer: int, part: int, features: str = "fp asimd", variant: int = 0, revision: int = 0) -> dict[str, str]:
    return {
        "Features": features,
        "CPU implementer": f"0x{implementer:02x}",
        "CPU architecture": "8",
        "CPU variant": f"0x{variant:x}",
        "CPU part": f"0x{part:03x}",
        "CPU revision": str(revision),
    }


def identity(host: Host) -> tuple[str, ...]:
    return (host.brand, host.vendor, host.family, host.model, host.stepping)


def flags(text: str, machine: str) -> set[str] | None:
    found = parse_cpuinfo(text, machine).flags
    return None if found is None else set(found)


X86 = {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "154", "model name": "Some CPU", "stepping": "3"}


def test_every_sample_is_in_the_table() -> None:
    """No text of tests/data/proc stays unread."""
    assert {path.stem.removeprefix("cpuinfo-") for path in PROC.glob("cpuinfo-*.txt")} == set(HOSTS)


@pytest.mark.parametrize("name", HOSTS)
def test_a_sample_gives_what_a_person_reads(name: str) -> None:
    """Identity and flags of each real machine come out exactly."""
    machine, expected = HOSTS[name]

    assert parse_cpuinfo(sample(name), machine) == expected


@pytest.mark.parametrize("name", HOSTS)
def test_a_text_cut_anywhere_never_turns_not_told_into_absent(name: str) -> None:
    """Cut at any byte, a text tells the flags of the whole or None, and of the identity nothing that is not there."""
    machine, whole = HOSTS[name]
    data = sample(name).encode()
    whole_values = {"", *identity(whole), *(value.split(" + ")[0] for value in identity(whole))}
    whole_values |= {line.partition(":")[2].strip() for line in sample(name).splitlines()}

    for end in range(len(data)):
        cut = parse_cpuinfo(data[:end].decode(errors="replace"), machine)
        assert cut.flags is None or whole.flags is None or cut.flags >= whole.flags
        assert set(identity(cut)) <= whole_values


def test_a_flags_line_cut_before_aes_is_not_a_cpu_without_aes() -> None:
    """A last line without its newline counts for nothing."""
    text = sample("x86-alderlake-i7-1260p")
    cut = text[: text.index(" aes ")]

    assert flags(cut, "x86_64") is None
    assert parse_cpuinfo(cut, "x86_64").model == "154"


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        (name, machine)
        for (name, (own, _)), machine in product(
            HOSTS.items(),
            ("x86_64", "aarch64", "armv7l", "ppc64le", "s390x", "riscv64", "loongarch64", "mips", "sparc64"),
        )
        if machine != own and not (own == "i686" and machine == "x86_64")
    ],
)
def test_the_text_of_another_architecture_tells_nothing(name: str, machine: str) -> None:
    """Under user-mode emulation /proc/cpuinfo is the real host's: no identity, and flags unknown."""
    own, _ = HOSTS[name]
    host = parse_cpuinfo(sample(name), machine)

    assert host == Host(architecture=host.architecture)
    assert foreign(sample(name), machine)
    assert not foreign(sample(name), own)


@pytest.mark.parametrize("text", ["", "\n", "processor\t: 0\n", "\0\x01\ufffd:\ufffd\n" * 9, ": \n:\n", "flags\n"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "made-up", ""])
def test_a_text_that_tells_nothing(text: str, machine: str) -> None:
    """Nothing in the text is nothing in the host, whose flags are unknown; no foreign kernel is seen in it either."""
    host = parse_cpuinfo(text, machine)

    assert host == Host(architecture=host.architecture)
    assert not foreign(text, machine)


def test_an_empty_list_of_flags_is_unknown() -> None:
    """No CPU is without any flag, so a kernel that lists none does not tell."""
    assert flags(cpus(X86 | {"flags": ""}), "x86_64") is None
    assert flags(cpus(X86 | {"flags": "fpu sse2"}), "x86_64") == set()


def test_flags_are_those_that_all_cpus_share() -> None:
    """On a hybrid host, only what every listed CPU has counts as present."""
    hybrid = cpus(X86 | {"flags": "fpu aes avx avx512f"}, X86 | {"flags": "fpu aes avx"})
    big_little = cpus(arm(0x41, 0xD05, "fp asimd aes sha1"), arm(0x41, 0xD0B, "fp asimd sha1 sha2"))

    assert flags(hybrid, "x86_64") == {"aes", "avx"}
    assert flags(big_little, "aarch64") == {"asimd", "sha1"}


def test_only_whole_words_are_flags() -> None:
    """A flag that merely contains the name of another is not that other."""
    text = cpus(X86 | {"flags": "fpu aeskl aes_kle xaes vaes"})

    assert flags(text, "x86_64") == {"vaes"}


def test_unknown_and_ragged_names() -> None:
    """The kernel's "unknown" is no name, and blanks in a name are collapsed."""
    text = cpus({"vendor_id": "unknown", "model name": "Intel(R)   Xeon(R)\t CPU ", "stepping": "unknown"})

    assert parse_cpuinfo(text, "x86_64") == Host(architecture="x86_64", brand="Intel(R) Xeon(R) CPU")


@pytest.mark.parametrize(
    ("implementer", "part", "brand", "vendor"),
    [
        (0x41, 0xD04, "Cortex-A35", "ARM"),
        (0x41, 0xD05, "Cortex-A55", "ARM"),
        (0x41, 0xD08, "Cortex-A72", "ARM"),
        (0x41, 0xD0B, "Cortex-A76", "ARM"),
        (0x41, 0xD0C, "Neoverse-N1", "ARM"),
        (0x41, 0xD40, "Neoverse-V1", "ARM"),
        (0x41, 0xD49, "Neoverse-N2", "ARM"),
        (0x41, 0xD4F, "Neoverse-V2", "ARM"),
        (0x41, 0xD80, "Cortex-A520", "ARM"),
        (0x41, 0xD81, "Cortex-A720", "ARM"),
        (0x43, 0x0AF, "ThunderX2-99xx", "Cavium"),
        (0x46, 0x001, "A64FX", "Fujitsu"),
        (0x48, 0xD01, "Kunpeng-920", "HiSilicon"),
        (0x4E, 0x003, "Denver 2", "NVIDIA"),
        (0x51, 0x001, "Oryon", "Qualcomm"),
        (0x51, 0x804, "Kryo-4XX-Gold", "Qualcomm"),
        (0x61, 0x022, "Icestorm-M1", "Apple"),
        (0x61, 0x000, "Apple silicon", "Apple"),
        (0xC0, 0xAC3, "Ampere-1", "Ampere"),
        (0x41, 0xFFF, "", "ARM"),
        (0x99, 0xD08, "", ""),
    ],
)
def test_arm_cores_have_names(implementer: int, part: int, brand: str, vendor: str) -> None:
    """ARM's numbers become names; an unknown core has none, so that py-cpuinfo may know it."""
    host = parse_cpuinfo(cpus(arm(implementer, part, variant=1, revision=2)), "aarch64")

    assert (host.brand, host.vendor, host.stepping) == (brand, vendor, "r1p2")
    assert (arm_cores.name(implementer, part), arm_cores.vendor(implementer)) == (brand, vendor)


def test_cores_of_two_vendors_and_an_unknown_one() -> None:
    """Each core keeps its own vendor's name, and one without a name shows its number beside the named."""
    text = cpus(arm(0x53, 0x002), arm(0x41, 0xD05), arm(0x41, 0xD05), arm(0x41, 0xF00))
    host = parse_cpuinfo(text, "aarch64")

    assert host.brand == "Exynos-M3 + Cortex-A55 + 0xf00"
    assert host.vendor == "Samsung + ARM"


def test_a_32_bit_text_names_an_unknown_core_itself() -> None:
    """32-bit kernels print a model name, which serves where the number is not known."""
    text = cpus({"model name": "ARMv7 Processor rev 1 (v7l)"} | arm(0x41, 0xC99, "half thumb neon"))

    assert parse_cpuinfo(text, "armv7l").brand == "ARMv7 Processor rev 1 (v7l)"


def test_features_of_both_widths_serve_both() -> None:
    """Old Android kernels list 64-bit and 32-bit features in one line."""
    text = cpus(arm(0x41, 0xD03, "fp asimd aes half thumb neon"))

    assert flags(text, "aarch64") == {"aes", "asimd"}
    assert flags(text, "armv8l") == {"aes", "neon"}
    assert not foreign(text, "armv8l")


def test_arm_without_features_keeps_its_identity() -> None:
    """Where a kernel leaves the features out, the flags are unknown and the core is not."""
    block = arm(0x41, 0xD08)
    del block["Features"]

    assert parse_cpuinfo(cpus(block), "aarch64").brand == "Cortex-A72"
    assert flags(cpus(block), "aarch64") is None


def test_riscv_lists_multi_letter_extensions() -> None:
    """Behind the underscores stand the extensions, of which those of all harts count; single letters tell nothing."""
    isa = "rv64imafdcv_zicsr_zkne_zknd_zvkned"
    both = cpus({"isa": isa, "hart isa": isa}, {"isa": isa, "hart isa": "rv64imafdcv_zicsr_zkne"})

    assert flags(cpus({"isa": isa}), "riscv64") == {"zkne", "zknd", "zvkned"}
    assert flags(both, "riscv64") == {"zkne"}
    assert flags(cpus({"isa": "rv64imafdc_zicsr"}), "riscv64") == set()
    assert flags(cpus({"isa": "rv64imafdc_zicsr_zkne"}, {"isa": "rv64imafdc"}), "riscv64") == set()


def test_riscv_identity_from_the_registers() -> None:
    """Newer kernels print the vendor, architecture and implementation registers."""
    registers = {"mvendorid": "0x710", "marchid": "0x8000000058000001", "mimpid": "0x1000000049772200"}
    host = parse_cpuinfo(cpus({"isa": "rv64imafdcv_zicsr", "model name": "Spacemit(R) X60"} | registers), "riscv64")

    assert (host.brand, host.vendor) == ("Spacemit(R) X60", "SpacemiT")
    assert (host.family, host.model) == (registers["marchid"], registers["mimpid"])


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("  AMD   EPYC\t7763 \n", "AMD EPYC 7763"),
        ("Unknown", ""),
        ("a\0b\x1b[31mc\u2028d\u200ee", "a b [31mc d e"),
        ("\ud800x", "x"),
        ("x" * 5000, "x" * 200),
        ("x" * 199 + " y", "x" * 199),
        (" " * 5000 + "x", ""),
        ("", ""),
    ],
)
def test_names_are_fit_for_labels(text: str, clean: str) -> None:
    """Whatever a file holds, what goes out is printable, on one line and short."""
    assert as_label(text) == clean


def vector(entries: dict[int, int]) -> bytes:
    return b"".join(struct.pack("NN", kind, value) for kind, value in (entries | {0: 0}).items())


needs_64_bit = pytest.mark.skipif(struct.calcsize("N") != 8, reason="the words of a vector are this process's")


@needs_64_bit
@pytest.mark.parametrize(
    ("architecture", "entries", "flags"),
    [
        ("aarch64", {16: 0x000000FF}, {"asimd", "aes", "pmull", "sha1", "sha2"}),
        ("aarch64", {16: 0x00200087}, {"asimd", "sha512"}),
        ("ppc64", {16: 0xDC0065C2, 26: 0xEF000000}, {"altivec", "vcrypto"}),
        ("ppc64", {16: 0xDC0065C2, 26: 0}, {"altivec"}),
        ("s390x", {16: 0xFF}, {"msa"}),
        ("loongarch64", {16: 0x30}, {"lasx", "lsx"}),
        ("ppc64", {16: 0xDC0065C2}, None),
        ("aarch64", {26: 0xFF}, None),
        ("x86_64", {16: 0xBFEBFBFF, 26: 2}, None),
        ("riscv64", {16: 0x112D}, None),
        ("made-up", {16: 0xFF}, None),
    ],
)
def test_flags_of_the_auxiliary_vector(architecture: str, entries: dict[int, int], flags: set[str] | None) -> None:
    """The bits of AT_HWCAP and AT_HWCAP2 are flags; a missing entry or an architecture that tells nothing is None."""
    assert parse_auxv(vector(entries), architecture) == flags


@needs_64_bit
def test_a_vector_of_another_word_size_tells_nothing() -> None:
    """A 64-bit process has no 32-bit ARM vector, whatever the kernel calls itself."""
    assert parse_auxv(vector({16: 0xFFFFFFFF, 26: 0xFFFFFFFF}), "arm") is None


@needs_64_bit
def test_a_vector_cut_anywhere_tells_the_truth_or_nothing() -> None:
    """Cut at any byte, the vector gives the same flags or None."""
    data = vector({33: 1, 16: 0xDC0065C2, 6: 65536, 26: 0xEF000000})

    assert {parse_auxv(data[:end], "ppc64") for end in range(len(data))} == {None, frozenset({"altivec", "vcrypto"})}


@needs_64_bit
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_flag_of_a_vector_is_in_the_closed_list(architecture: str) -> None:
    """No bit is taken for a flag that the metrics do not know."""
    found = parse_auxv(vector({16: 2**64 - 1, 26: 2**64 - 1}), architecture) or frozenset()

    assert found <= set(ARCHITECTURES[architecture].flags)
