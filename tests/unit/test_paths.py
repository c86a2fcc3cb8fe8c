"""The environments of workers, and what their paths demand."""

from __future__ import annotations

import pytest

from aes_exporter import paths
from aes_exporter.capabilities import VARIABLES
from aes_exporter.model import Exemption

HOSTILE = {
    **dict.fromkeys(VARIABLES, "~0x200000200000000"),
    "PYTHONPATH": "/x",
    "LD_PRELOAD": "/x.so",
    "OPENSSL_CONF": "/x.cnf",
    "SECRET": "x",
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "LD_LIBRARY_PATH": "/opt/python/lib",
}
LET_THROUGH = {"PATH": "/bin", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/opt/python/lib"}
AES, NONE = (1 << 57,), (1 << 41,)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "unheard-of"])
def test_the_hardware_path_inherits_no_mask(machine: str) -> None:
    """Only the allow-list gets through, so a capability variable of the daemon's own reaches no worker."""
    assert paths.environment("hardware", machine, HOSTILE) == LET_THROUGH


def test_the_software_path_masks_aes_and_nothing_behind_it() -> None:
    """On x86 the mask clears AES-NI and PCLMULQDQ and leaves every other word of the vector alone."""
    environment = paths.environment("software", "x86_64", HOSTILE)

    assert environment == {**LET_THROUGH, "OPENSSL_ia32cap": "~0x200000200000000:~0:~0:~0:~0"}
    assert 0x200000200000000 == 1 << 57 | 1 << 33


@pytest.mark.parametrize("machine", ["aarch64", "s390x", "unheard-of"])
def test_elsewhere_there_is_no_mask_yet(machine: str) -> None:
    """Where this version knows no mask, the software path is not applicable rather than wrong."""
    assert paths.environment("software", machine, {}) is Exemption.MASK_UNSUPPORTED


@pytest.mark.parametrize(
    ("path", "words", "effective"),
    [("hardware", AES, True), ("hardware", NONE, False), ("software", AES, False), ("software", NONE, True)],
)
def test_words_prove_a_path(path: str, words: tuple[int, ...], effective: bool) -> None:
    """The AES bit is set on the hardware path and clear on a masked one, or the path is not what it says."""
    assert paths.effective(path, words, "x86_64") is effective


def test_flags_come_from_the_words_if_there_are_any() -> None:
    """The library's words are believed over the host's flags, since they say what is in effect."""
    assert paths.cpu_flags("software", "x86_64", NONE, frozenset({"aes", "avx"})) == ("ssse3",)


def test_without_words_the_masked_flags_are_taken_off_the_hosts() -> None:
    """Where a library keeps its words to itself, the label shows the host's flags less those that the path masks."""
    flags = frozenset({"pclmulqdq", "ssse3", "aes"})

    assert paths.cpu_flags("hardware", "x86_64", None, flags) == ("aes", "pclmulqdq", "ssse3")
    assert paths.cpu_flags("software", "x86_64", None, flags) == ("ssse3",)
    assert paths.cpu_flags("hardware", "x86_64", None, None) == ()
