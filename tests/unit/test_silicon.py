"""What chains of known length tell of a CPU."""

from __future__ import annotations

import pytest

from aes_exporter.silicon import quiet_rounds, silicon
from aes_exporter.worker.messages import Slice


def slices(*nanoseconds: int, calls: int = 1000) -> list[Slice]:
    return [Slice(calls=calls, wall_ns=wall, cpu_ns=wall) for wall in nanoseconds]


ZEN3 = {
    "clock": slices(308_280, 308_300, 320_000, calls=1_000_000),
    "cbc": slices(12_332, 13_000),
    "encrypt": slices(1_543, 1_600),
    "decrypt": slices(1_544, 1_600),
    "vaes_encrypt": slices(772, 800),
    "vaes_decrypt": slices(773, 800),
}


def test_clock_and_limits_of_a_zen3() -> None:
    """The best slice of each chain gives clock and limits; CBC encryption is bound by the chain, all else is not."""
    found = silicon(ZEN3)

    assert found is not None
    assert found.core_hertz == pytest.approx(3.2438e9, rel=1e-4)
    assert {
        (limit.algorithm, limit.operation, limit.instructions): round(limit.bytes_per_second / 1e6)
        for limit in found.limits
    } == {
        ("aes-128-cbc", "encrypt", "aes"): 1297,
        ("aes-128-cbc", "decrypt", "aes"): 10363,
        ("aes-128-ecb", "encrypt", "aes"): 10369,
        ("aes-128-ecb", "decrypt", "aes"): 10363,
        ("aes-128-cbc", "decrypt", "vaes"): 20699,
        ("aes-128-ecb", "encrypt", "vaes"): 20725,
        ("aes-128-ecb", "decrypt", "vaes"): 20699,
    }


def test_quiet_rounds_are_within_three_thousandths_of_the_best() -> None:
    """A round is quiet within 0.3 % of the shortest clock slice."""
    assert quiet_rounds(slices(100_000, 100_299, 100_301, 101_000)) == [True, True, False, False]
    found = silicon(ZEN3)
    assert found is not None
    assert found.quiet_ratio == pytest.approx(2 / 3)


def test_without_aes_there_are_no_limits_but_a_clock() -> None:
    """Chains that a CPU cannot run leave their limits out."""
    found = silicon({"clock": ZEN3["clock"]})

    assert found is not None
    assert found.limits == ()
    assert found.core_hertz > 0


def test_without_a_clock_nothing_is_told() -> None:
    """Where no chain can run, nothing is known of the CPU."""
    assert silicon({}) is None
