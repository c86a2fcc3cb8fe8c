"""Capability words as real libraries print them."""

from __future__ import annotations

import pytest

from aes_exporter import capabilities

ZEN3 = "CPUINFO: OPENSSL_ia32cap=0xfffa3203078bffff:0x400684219c07ab"
ZEN3_FLAGS = {"aes", "avx", "avx2", "pclmulqdq", "sha_ni", "ssse3", "vaes", "vpclmulqdq"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ZEN3, (0xFFFA3203078BFFFF, 0x400684219C07AB)),
        (ZEN3 + " env:~0x200000200000000:~0", (0xFFFA3203078BFFFF, 0x400684219C07AB)),
        (
            "CPUINFO: OPENSSL_ia32cap=0xfdfa3201078bffff:0x0000000000000000:0x0:0x0:0x0 env:~0x200000200000000",
            (0xFDFA3201078BFFFF, 0, 0, 0, 0),
        ),
        ("CPUINFO: OPENSSL_armcap=0x7d", (0x7D,)),
        ("CPUINFO: OPENSSL_ppccap=0x2e", (0x2E,)),
        ("CPUINFO: OPENSSL_s390xcap=stfle:0x1:0x2:km:0x3", None),
        ("CPUINFO: OPENSSL_riscvcap=RV64GC_ZBA", None),
        ("CPUINFO: N/A", None),
        ("not available", None),
        (" env:~0x200000200000000", None),
        ("CPUINFO: OPENSSL_ia32cap=0x12345678901234567", None),
        ("CPUINFO: OPENSSL_ia32cap=0x1:", None),
        ("", None),
        (None, None),
    ],
)
def test_words_are_read_and_nothing_else(text: str | None, words: tuple[int, ...] | None) -> None:
    """Only whole hexadecimal words are believed; the variable's echo behind them never is."""
    assert capabilities.parse_words(text) == words


def test_flags_of_a_zen3() -> None:
    """The flags in effect are those whose bit is set, under the names that /proc/cpuinfo uses."""
    words = capabilities.parse_words(ZEN3)

    assert words is not None
    assert capabilities.flags_of(words, "x86_64") == ZEN3_FLAGS
    assert capabilities.flags_of(words[:1], "x86_64") == {"aes", "avx", "pclmulqdq", "ssse3"}
    assert capabilities.flags_of(words, "sparc64") == frozenset()


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("x86_64", "x86_64"),
        ("AMD64", "x86_64"),
        ("i686", "x86"),
        ("arm64", "aarch64"),
        ("armv7l", "arm"),
        ("ppc64le", "ppc64"),
        ("mips", "mips"),
    ],
)
def test_machine_names_are_folded(machine: str, name: str) -> None:
    """What uname prints on different systems for the same architecture becomes one name."""
    assert capabilities.canonical(machine) == name


@pytest.mark.parametrize("architecture", capabilities.ARCHITECTURES.values(), ids=capabilities.ARCHITECTURES.keys())
def test_the_table_is_consistent(architecture: capabilities.Architecture) -> None:
    """Every flag that a word shows, and the AES flag, are on the architecture's closed list, which is sorted."""
    assert set(architecture.bits) <= set(architecture.flags)
    assert architecture.aes in {*architecture.flags, ""}
    assert list(architecture.flags) == sorted(architecture.flags)


@pytest.mark.parametrize(
    ("flags", "machine", "known"),
    [
        (frozenset({"aes"}), "x86_64", False),
        (frozenset({"pclmulqdq"}), "x86_64", True),
        (None, "x86_64", False),
        (frozenset(), "s390x", False),
    ],
)
def test_only_known_absence_counts(flags: frozenset[str] | None, machine: str, known: bool) -> None:
    """A CPU lacks AES instructions only where its flags are known and would show them."""
    assert capabilities.known_without_aes(flags, machine) is known
