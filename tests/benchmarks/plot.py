"""The plot of docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

Key = tuple[str, str, str, int]
Throughputs = dict[Key, float]


def draw(
    file: Path,
    keys: Sequence[Key],
    *,
    idle: Throughputs,
    openssl: Throughputs,
    openssl_busy: Throughputs,
    busy: Sequence[Throughputs],
) -> None:
    """Draw throughput by block size, a panel for each algorithm and operation, as SVG."""
    mpl.rcParams.update({"svg.hashsalt": "aes-exporter", "font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True, layout="constrained")
    for panel, row in zip(axes.flat, dict.fromkeys(key[:2] for key in keys), strict=True):
        for path, colour in (("hardware", "tab:blue"), ("software", "tab:orange")):
            sizes = sorted({key[3] for key in keys if key[:3] == (*row, path)})
            lines = (
                (idle, "-", "o", "exporter"),
                (openssl, "none", "+", "openssl speed, best of three"),
                (openssl_busy, ":", "x", "openssl speed, busy machine"),
            )
            for values, style, marker, label in lines:
                panel.plot(
                    sizes,
                    [values[*row, path, size] / 1e6 for size in sizes],
                    linestyle=style,
                    marker=marker,
                    color=colour,
                    label=f"{path}: {label}",
                )
            panel.plot(
                sizes,
                [min(each[*row, path, size] for each in busy) / 1e6 for size in sizes],
                linestyle="none",
                marker="o",
                fillstyle="none",
                markersize=9,
                color=colour,
                label=f"{path}: exporter, busy machine, lowest of ten",
            )
        panel.set(title=" ".join(row), xscale="log", yscale="log", ylabel="MB/s")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.grid(visible=True, alpha=0.3)
    for panel in axes[1]:
        panel.set_xlabel("bytes per call")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(file, metadata={"Date": None})
