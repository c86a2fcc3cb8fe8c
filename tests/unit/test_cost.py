"""What AES costs: the units, and which figures stand for a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aes_exporter.cost import UNITS, comparisons, headline_engine, number
from aes_exporter.model import Figure, Lane
from aes_exporter.vocabulary import Cell
from tests.snapshots import HARDWARE, LANES, RUN, RUN_FAILED, RUN_PARTLY_FAILED, measurement, run


def test_the_units() -> None:
    """At 2.5 GB/s a core a GB takes 0.4 s of CPU, and 10 Gbit/s, which are 1.25 GB/s, half a core."""
    assert {unit: convert(2.5e9) for unit, convert in UNITS.items()} == {
        "GB/s": 2.5,
        "CPU seconds per GB": 0.4,
        "cores per 10 Gbit/s": 0.5,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.000123456, "0.000123"),
        (0.0828, "0.0828"),
        (0.329, "0.329"),
        (1.2, "1.20"),
        (9.9449, "9.94"),
        (34.27, "34.3"),
        (100.4, "100"),
        (12345.6, "12346"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    """Numbers for people have three significant digits, trailing zeros included, and never an exponent."""
    assert number(value) == text


def test_a_comparison_has_all_paths_and_the_speed_up() -> None:
    """Each algorithm and operation has the best throughput of each path at 8192 bytes, and their ratio."""
    found = comparisons(RUN, "libcrypto")

    assert [(each.cell.algorithm, each.cell.operation, each.cell.block_size) for each in found] == [
        ("aes-128-cbc", "encrypt", 8192),
        ("aes-128-cbc", "decrypt", 8192),
        ("aes-128-ecb", "encrypt", 8192),
        ("aes-128-ecb", "decrypt", 8192),
    ]
    assert list(found[0].throughputs) == ["hardware", "software"]
    assert found[0].speedup
    assert found[0].speedup.ratio == found[0].throughputs["hardware"] / found[0].throughputs["software"]


def test_without_both_paths_there_is_no_speed_up() -> None:
    """What was measured on one path only is there without a ratio."""
    found = comparisons(RUN_PARTLY_FAILED, "libcrypto")

    assert [(*each.throughputs, each.speedup) for each in found] == [("hardware", None)] * 4


def test_the_software_path_is_the_baseline_of_choice() -> None:
    """Where two masked paths were measured, the speed-up is over the first of the plan."""
    table = Lane(engine="libcrypto", path="table")
    outcomes = {lane: measurement(lane) for lane in LANES[:2]} | {table: measurement(LANES[1])}

    assert {each.speedup.baseline for each in comparisons(run(outcomes), "libcrypto") if each.speedup} == {"software"}


def test_other_sizes_where_the_usual_one_is_missing() -> None:
    """Without 8192 bytes the largest block size stands for the others."""
    figures = tuple(
        Figure(cell=Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=size), best=1e9, median=1e9)
        for size in (16, 256, 64)
    )
    found = comparisons(run({HARDWARE: replace(measurement(HARDWARE), figures=figures)}), "libcrypto")

    assert [each.cell.block_size for each in found] == [256]


def test_an_engine_that_was_not_measured_has_no_comparisons() -> None:
    """Nothing measured is an empty list."""
    assert comparisons(RUN_FAILED, "libcrypto") == []


def test_the_first_engine_that_was_measured_stands_for_the_host() -> None:
    """The headline is libcrypto's, or another engine's where only that was measured, and libcrypto's where none was."""
    other = Lane(engine="cryptography", path="hardware")
    failed = dict(RUN_FAILED.outcomes)

    assert headline_engine(RUN) == "libcrypto"
    assert headline_engine(run({**failed, other: measurement(other)})) == "cryptography"
    assert headline_engine(RUN_FAILED) == "libcrypto"
