"""Where the parts of a chart stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter import chart

SIZES = st.sets(st.integers(1, 4096).map(lambda count: 16 * count), min_size=1, max_size=64)
RATES = st.floats(1.0, 1e13)


@pytest.mark.parametrize(
    ("values", "powers"),
    [([2e8, 3e9], (8, 10)), ([1e9], (9, 10)), ([1e8, 1e10], (8, 10)), ([9.9e8, 1.01e9], (8, 10)), ([0.5], (0, 1))],
)
def test_the_axis_spans_whole_decades(values: list[float], powers: tuple[int, int]) -> None:
    """The axis begins at a power of ten not above the smallest value and ends at one not below the largest."""
    assert chart.decades(values) == powers


def test_the_axis_of_throughputs_is_logarithmic() -> None:
    """Each decade has the same height, and a value at a decade stands on its line."""
    drawn = chart.throughputs({"hardware": {16: 1e8, 64: 1e9, 256: 1e10}}, (8, 10))
    heights = [mark.y for mark in drawn.lines["hardware"]]

    assert [tick.text for tick in drawn.up] == ["100 MB/s", "1 GB/s", "10 GB/s"]
    assert heights == [tick.y for tick in drawn.up]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2])
    assert (heights[0], heights[2]) == (drawn.floor, drawn.top)


def test_paths_share_the_places_of_block_sizes() -> None:
    """Sizes stand in order at equal distances, and a size has the same place on every line."""
    drawn = chart.throughputs({"hardware": {1024: 1e9, 16: 1e9, 64: 1e9}, "software": {64: 1e8}}, (8, 9))
    x = [mark.x for mark in drawn.lines["hardware"]]

    assert [tick.text for tick in sorted(drawn.across, key=lambda tick: tick.x)] == ["16 B", "64 B", "1 KiB"]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1])
    assert drawn.lines["software"][0].x == x[1]


def test_bars_are_proportional() -> None:
    """The height of a bar is its ratio, on an axis that begins at zero, so that equal heights are equal speed-ups."""
    drawn = chart.speedups("software", {16: 4.0, 64: 8.0}, highest=16.0)
    heights = [drawn.floor - mark.y for mark in drawn.lines["software"]]

    assert heights == pytest.approx([(drawn.floor - drawn.top) / 4, (drawn.floor - drawn.top) / 2])
    assert [mark.text for mark in drawn.lines["software"]] == [
        "4.0×",
        "8.0×",
    ]


@given(st.dictionaries(SIZES.map(min), RATES, min_size=1, max_size=64))
def test_everything_stays_within_the_axes(series: dict[int, float]) -> None:
    """Whatever the sizes and values, no mark leaves the axes, and at most six labels share the width."""
    drawn = chart.throughputs({"hardware": series}, chart.decades([*series.values()]))

    assert all(drawn.left < mark.x < drawn.right for mark in drawn.lines["hardware"])
    assert all(drawn.top <= mark.y <= drawn.floor for mark in drawn.lines["hardware"])
    assert 1 <= len(drawn.across) <= 6
    assert max(tick.x for tick in drawn.across) == max(mark.x for mark in drawn.lines["hardware"])
