"""Which AES code a cell runs: every row of the rules, and every threshold on both sides."""

from __future__ import annotations

import pytest

from aes_exporter.implementation import implementation
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell

CBC_ENCRYPT, CBC_DECRYPT = ("aes-128-cbc", "encrypt"), ("aes-128-cbc", "decrypt")
ECB_ENCRYPT, ECB_DECRYPT = ("aes-128-ecb", "encrypt"), ("aes-128-ecb", "decrypt")
ALL = (CBC_ENCRYPT, CBC_DECRYPT, ECB_ENCRYPT, ECB_DECRYPT)
ALL_BUT_CBC_DECRYPT = (CBC_ENCRYPT, ECB_ENCRYPT, ECB_DECRYPT)

SHORT, LONG = (16, 64, 112), (128, 144, 256, 1024, 8192, 16384)
EVERY = SHORT + LONG

AESNI, SSSE3 = 1 << 57, 1 << 41
NEON, ARM_AES = 1, 1 << 2
ALTIVEC, CRYPTO207 = 1 << 1, 1 << 2

Kind = tuple[str, str]
Rule = tuple[str, int, str, int, tuple[Kind, ...], tuple[int, ...], str]
RULES: list[Rule] = [
    # machine, width of the process, library, first word, algorithms and operations, lengths, name
    ("x86_64", 64, "OpenSSL 3.0.19", AESNI | SSSE3, ALL, EVERY, "aesni"),
    ("x86_64", 64, "OpenSSL 3.0.19", SSSE3, ALL_BUT_CBC_DECRYPT, EVERY, "vpaes"),
    ("x86_64", 64, "OpenSSL 3.0.19", SSSE3, (CBC_DECRYPT,), SHORT, "table"),
    ("x86_64", 64, "OpenSSL 3.0.19", SSSE3, (CBC_DECRYPT,), LONG, "bsaes"),
    ("x86_64", 64, "OpenSSL 3.0.19", 0, ALL, EVERY, "table"),
    ("x86_64", 64, "OpenSSL 3.0.0", AESNI | SSSE3, ALL, EVERY, "aesni"),
    ("x86_64", 64, "OpenSSL 4.0.3", AESNI | SSSE3, ALL, EVERY, "aesni"),
    ("x86_64", 64, "OpenSSL 4.0.3", SSSE3, (CBC_DECRYPT,), LONG, "bsaes"),
    ("x86_64", 32, "OpenSSL 3.0.1", AESNI | SSSE3, ALL, EVERY, "aesni"),
    ("x86_64", 32, "OpenSSL 3.0.1", SSSE3, ALL, EVERY, "vpaes"),
    ("x86", 32, "OpenSSL 3.5.6", SSSE3, ALL, EVERY, "vpaes"),
    ("x86", 64, "OpenSSL 3.5.6", AESNI | SSSE3, ALL, EVERY, "aesni"),
    ("x86", 32, "OpenSSL 3.5.6", 0, ALL, EVERY, "table"),
    ("x86", 32, "OpenSSL 3.0.0", AESNI | SSSE3, ALL, EVERY, "table"),
    ("aarch64", 64, "OpenSSL 3.0.19", ARM_AES | NEON, ALL, EVERY, "armv8"),
    ("aarch64", 64, "OpenSSL 3.0.19", NEON, ALL, EVERY, "vpaes"),
    ("aarch64", 64, "OpenSSL 3.1.0", NEON, ALL_BUT_CBC_DECRYPT, EVERY, "vpaes"),
    ("aarch64", 64, "OpenSSL 3.1.0", NEON, (CBC_DECRYPT,), SHORT, "table"),
    ("aarch64", 64, "OpenSSL 3.1.0", NEON, (CBC_DECRYPT,), LONG, "bsaes"),
    ("aarch64", 64, "OpenSSL 3.5.6", 0, ALL, EVERY, "table"),
    ("arm", 32, "OpenSSL 3.0.19", ARM_AES | NEON, ALL, EVERY, "armv8"),
    ("arm", 64, "OpenSSL 3.0.19", NEON, ALL_BUT_CBC_DECRYPT, EVERY, "table"),
    ("arm", 32, "OpenSSL 3.0.19", NEON, (CBC_DECRYPT,), SHORT, "table"),
    ("arm", 32, "OpenSSL 3.0.19", NEON, (CBC_DECRYPT,), LONG, "bsaes"),
    ("aarch64", 32, "OpenSSL 3.0.19", NEON, (CBC_DECRYPT,), LONG, "bsaes"),
    ("arm", 32, "OpenSSL 3.0.19", 0, ALL, EVERY, "table"),
    ("ppc64", 64, "OpenSSL 3.5.6", CRYPTO207 | ALTIVEC, ALL, EVERY, "power8"),
    ("ppc64", 64, "OpenSSL 3.5.6", ALTIVEC, ALL, EVERY, "vpaes"),
    ("ppc64", 64, "OpenSSL 3.5.6", 0, ALL, EVERY, "table"),
]


def cells(kinds: tuple[Kind, ...], sizes: tuple[int, ...]) -> list[Cell]:
    return [
        Cell(algorithm=algorithm, operation=operation, block_size=size)
        for algorithm, operation in kinds
        for size in sizes
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, (*rule[:4], rule[6]))))
def test_the_name_follows_from_words_mode_direction_and_length(rule: Rule) -> None:
    """Each rule gives its one name for every cell it covers."""
    machine, bits, library, word, kinds, sizes, name = rule

    found = {cell: implementation(cell, (word, 0), machine, library, bits=bits) for cell in cells(kinds, sizes)}

    assert found == dict.fromkeys(found, name)


def test_the_rules_leave_no_cell_of_an_architecture_out() -> None:
    """On x86-64 with and without AES-NI and SSSE3 every cell has a name."""
    names = {
        implementation(cell, (word,), "x86_64", "OpenSSL 3.0.19")
        for word in (0, SSSE3, AESNI, AESNI | SSSE3)
        for cell in cells(tuple((algorithm, operation) for algorithm in ALGORITHMS for operation in OPERATIONS), EVERY)
    }

    assert names == {"aesni", "vpaes", "bsaes", "table"}


@pytest.mark.parametrize(
    ("words", "machine", "library", "bits"),
    [
        pytest.param(None, "x86_64", "OpenSSL 1.1.1r", 64, id="words that nobody printed"),
        pytest.param(None, "x86_64", "OpenSSL 3.0.19", 64, id="words lost"),
        pytest.param((AESNI,), "x86_64", "OpenSSL 1.1.1w", 64, id="before the rules"),
        pytest.param((AESNI,), "x86_64", "OpenSSL 4.1.0", 64, id="after the rules"),
        pytest.param((AESNI,), "x86_64", "BoringSSL", 64, id="BoringSSL"),
        pytest.param((AESNI,), "x86_64", "AWS-LC 1.30.0", 64, id="AWS-LC"),
        pytest.param((AESNI,), "x86_64", "LibreSSL 3.8.2", 64, id="LibreSSL"),
        pytest.param((AESNI,), "x86_64", "", 64, id="no name"),
        pytest.param((1,), "ppc64", "OpenSSL 3.5.6", 32, id="32-bit POWER"),
        pytest.param((1,), "riscv64", "OpenSSL 3.5.6", 64, id="an architecture without words"),
        pytest.param((1,), "unheard-of", "OpenSSL 3.5.6", 64, id="an architecture unheard of"),
    ],
)
def test_what_the_rules_do_not_cover_is_unknown(
    words: tuple[int, ...] | None, machine: str, library: str, bits: int
) -> None:
    """Without words, or with a library, release or architecture whose sources were not read, there is no guess."""
    cell = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=1024)

    assert implementation(cell, words, machine, library, bits=bits) == "unknown"
