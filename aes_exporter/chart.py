"""Where the parts of a chart stand: figures by block size in, coordinates for an SVG of WIDTH by HEIGHT out.

Pure geometry: knows nothing of colours, markup and words for people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 8, 16, 20
_MOST_LABELS = 6
_PREFIXES = (("TB/s", 12), ("GB/s", 9), ("MB/s", 6), ("kB/s", 3), ("B/s", 0))

Series = Mapping[int, float]
"""Values by block size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point or the top of a bar, and what is written at it ("" for nothing)."""

    x: float
    y: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines by name, the labels of both axes, and the inside of the axes: `left`, `right`, `top`, `floor`.

    A bar is `bar_width` wide and reaches from its mark down to the floor.
    """

    lines: Mapping[str, Sequence[Mark]]
    across: Sequence[Mark]
    up: Sequence[Mark]
    bar_width: float
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    floor: float = HEIGHT - _BOTTOM


def decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten between which all values lie."""
    low = max(0, math.floor(math.log10(min(values))))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def throughputs(lines: Mapping[str, Series], powers: tuple[int, int]) -> Chart:
    """Return lines of bytes per second on a logarithmic axis that spans these powers of ten."""
    low, high = powers

    def share(value: float) -> float:
        return (math.log10(value) - low) / (high - low)

    ticks = {_rate(power): share(10.0**power) for power in range(low, high + 1)}
    return _chart(
        {name: {size: (share(value), "") for size, value in series.items()} for name, series in lines.items()}, ticks
    )


def speedups(name: str, series: Series, highest: float) -> Chart:
    """Return bars of ratios on a linear axis that ends at `highest`, each with its value where there is room."""
    labelled = _spread([*series])
    bars = {size: (value / highest, f"{value:.1f}×" if size in labelled else "") for size, value in series.items()}
    return _chart({name: bars}, {"1×": 1 / highest})


def _chart(lines: Mapping[str, Mapping[int, tuple[float, str]]], ticks: Mapping[str, float]) -> Chart:
    """Return a chart of shares of the height, with block sizes at equal distances as `openssl speed` has them."""
    sizes = sorted({size for line in lines.values() for size in line})
    step = (WIDTH - _LEFT - _RIGHT) / len(sizes)
    x = {size: round(_LEFT + (place + 0.5) * step, 1) for place, size in enumerate(sizes)}
    labelled = _spread(sizes)
    return Chart(
        lines={
            name: [Mark(x=x[size], y=_y(share), text=text) for size, (share, text) in sorted(line.items())]
            for name, line in lines.items()
        },
        across=[Mark(x=x[size], y=HEIGHT, text=_size(size)) for size in labelled],
        up=[Mark(x=_LEFT, y=_y(share), text=text) for text, share in ticks.items()],
        bar_width=round(0.6 * step, 1),
    )


def _y(share: float) -> float:
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _spread(sizes: Sequence[int]) -> Sequence[int]:
    """Return as many of the sizes as have room for a label, evenly spread, the last one among them."""
    return sorted(sizes)[:: -math.ceil(len(sizes) / _MOST_LABELS)]


def _rate(power: int) -> str:
    unit, exponent = next((unit, exponent) for unit, exponent in _PREFIXES if power >= exponent)
    return f"{10 ** (power - exponent)} {unit}"


def _size(block_size: int) -> str:
    return f"{block_size} B" if block_size % 1024 else f"{block_size // 1024} KiB"
