"""How good the figures are: writes docs/accuracy.md and its plot.

Run as root on an otherwise idle machine: python -m tests.benchmarks.accuracy     (about 35 minutes)
What was measured is kept: with --again, the report is written anew from it.

Every libcrypto cell on both paths against the best of three `openssl speed -elapsed` runs (six at 16 bytes) in the same
minutes; then ten runs of the exporter idle, ten under four busy loops, ten under a CPU quota of 20 %, each beside
`openssl speed` under the same condition. The runs keep the daemon's pace, rounds half a second apart. The quota needs a
writable cgroup, and is left out with a reason without one.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aes_exporter import verdict
from aes_exporter.vocabulary import Cell
from aes_exporter.worker.messages import Slice
from tests.benchmarks import estimators, openssl
from tests.benchmarks.estimators import Key, Sample
from tests.benchmarks.plot import draw

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
KEPT = ROOT / "build" / "accuracy.pickle"
RUNS = 10
QUOTA = 0.2
BY_HAND = "## Reading these figures\n"
"""From this heading on the page is written by hand, and kept."""

Throughputs = dict[Key, float]


@dataclass(frozen=True)
class Bench:
    """One run of the exporter, with what it said of itself, and all its slices."""

    samples: dict[Key, Sample]
    limits: dict[tuple[str, str], float]
    hertz: float
    cpu_seconds: float
    wall_seconds: float

    @cached_property
    def best(self) -> Throughputs:
        """What the exporter makes of the slices, in bytes per second."""
        found: Throughputs = {}
        for path in dict.fromkeys(key[2] for key in self.samples):
            keys = [key for key in self.samples if key[2] == path]
            cells = [Cell(algorithm=key[0], operation=key[1], block_size=key[3]) for key in keys]
            rounds = list(zip(*(self.samples[key].slices for key in keys), strict=True))
            found |= {key: figure.best for key, figure in zip(keys, verdict.figures(cells, rounds), strict=True)}
        return found


def bench(prefix: Sequence[str] = ()) -> Bench:
    command = (sys.executable, "-m", "tests.benchmarks.recorded")
    found = json.loads(subprocess.run([*prefix, *command], capture_output=True, check=True).stdout)
    clock = [_slice(*numbers) for numbers in found["clock"]]
    probes: dict[str, list[int]] = {}
    for each in found["slices"]:
        probes.setdefault(each["path"], []).extend(time for numbers in each["taken"] for time in numbers[3::2])
    return Bench(
        samples={
            (each["algorithm"], each["operation"], each["path"], each["block_size"]): Sample(
                slices=[_slice(*numbers) for numbers in each["taken"]], clock=clock, probe_ns=min(probes[each["path"]])
            )
            for each in found["slices"]
        },
        limits={
            (limit["algorithm"], limit["operation"]): limit["bytes_per_second"]
            for limit in found["limits"]
            if limit["instructions"] == "aes"
        },
        hertz=found["core_frequency_hertz"],
        cpu_seconds=found["run"]["cpu_seconds"],
        wall_seconds=found["run"]["duration_seconds"],
    )


def _slice(calls: int, wall_ns: int, cpu_ns: int, *timings: int) -> Slice:
    return Slice(calls=calls, wall_ns=wall_ns, cpu_ns=cpu_ns, timings=timings)


def openssl_once(keys: Sequence[Key], prefix: Sequence[str] = ()) -> Throughputs:
    return {key: openssl.throughput(*key, prefix=prefix) for key in keys}


@contextmanager
def busy_loops(count: int = 4) -> Iterator[None]:
    """Keep the machine busy for as long as the block takes."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def quota() -> Iterator[list[str]]:
    """Give the prefix of a command that runs it in a cgroup with the quota. Raises OSError where there is none."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup" if unified else "/sys/fs/cgroup/cpu") / f"aes-exporter-{os.getpid()}"
    group.mkdir()
    try:
        if unified:
            (group / "cpu.max").write_text(f"{int(QUOTA * 100_000)} 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(str(int(QUOTA * 100_000)))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        group.rmdir()


def spread(runs: Sequence[Bench], key: Key) -> float:
    """Return how far the lowest of several runs lies below the highest, as a share."""
    values = [run.best[key] for run in runs]
    return 1 - min(values) / max(values)


def table(heading: str, keys: Sequence[Key], cell: Callable[[Key], str]) -> Iterator[str]:
    """Yield a Markdown table with block sizes as columns."""
    sizes = sorted({key[3] for key in keys})
    yield f"| {heading} | {' | '.join(f'{size} B' for size in sizes)} |"
    yield "|---" * (len(sizes) + 1) + "|"
    for row in dict.fromkeys(key[:3] for key in keys):
        yield f"| {' '.join(row)} | {' | '.join(cell((*row, size)) for size in sizes)} |"


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


@dataclass(frozen=True)
class Collected:
    """All that was measured in one go; without a quota, `limited` is empty and `refusal` says why."""

    date: str
    yardstick: Throughputs
    idle: Sequence[Bench]
    busy: Sequence[Bench]
    busy_openssl: Throughputs
    limited: Sequence[Bench]
    limited_openssl: Throughputs
    refusal: str


def collect() -> Collected:
    print("idle: ten runs, openssl speed", flush=True)
    first = bench()
    keys = list(first.samples)
    yardstick = {key: openssl.best(*key) for key in keys}
    idle = [first, *(bench() for _ in range(RUNS - 1))]
    print("busy: ten runs, openssl speed", flush=True)
    with busy_loops():
        busy, busy_openssl = [bench() for _ in range(RUNS)], openssl_once(keys)
    print("quota: ten runs, openssl speed", flush=True)
    try:
        with quota() as prefix:
            limited, limited_openssl, refusal = [bench(prefix) for _ in range(RUNS)], openssl_once(keys, prefix), ""
    except OSError as error:
        limited, limited_openssl, refusal = [], {}, str(error)
    return Collected(
        date=time.strftime("%Y-%m-%d"),
        yardstick=yardstick,
        idle=idle,
        busy=busy,
        busy_openssl=busy_openssl,
        limited=limited,
        limited_openssl=limited_openssl,
        refusal=refusal,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="write the report anew from what was measured last")
    if parser.parse_args().again:
        found: Collected = pickle.loads(KEPT.read_bytes())
    else:
        found = collect()
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_bytes(pickle.dumps(found))
    keys = list(found.yardstick)
    page = DOCS / "accuracy.md"
    notes = page.read_text().partition(BY_HAND)[2].rstrip()
    lines = [
        "# Accuracy",
        "",
        f"<!-- Written by `python -m tests.benchmarks.accuracy` on {found.date}. -->",
        "",
        *fidelity(keys, found.idle, found.yardstick),
        *repeatability(keys, found.idle),
        *disturbed("Under four busy loops", found, found.busy, found.busy_openssl),
        *(
            disturbed("Under a CPU quota of 20 %", found, found.limited, found.limited_openssl)
            if found.limited
            else ["## Under a CPU quota", "", f"Not measured: {found.refusal}.", ""]
        ),
        *silicon(found.idle),
        *estimators.report(*([run.samples for run in runs] for runs in (found.idle, found.busy, found.limited))),
        *cost(keys, found.idle),
        f"{BY_HAND}{notes}",
    ]
    page.write_text("\n".join(lines) + "\n")
    draw(
        DOCS / "accuracy.svg",
        keys,
        idle=found.idle[0].best,
        openssl=found.yardstick,
        openssl_busy=found.busy_openssl,
        busy=[run.best for run in found.busy],
    )


def fidelity(keys: Sequence[Key], idle: Sequence[Bench], yardstick: Throughputs) -> Iterator[str]:
    ratios = {key: statistics.median(run.best[key] for run in idle) / yardstick[key] for key in keys}
    lowest = {key: min(run.best[key] for run in idle) / yardstick[key] for key in keys}
    yield "## Against openssl speed"
    yield ""
    yield "Median of ten idle runs over the best of three `openssl speed -elapsed` runs of a second (six at 16 bytes):"
    yield ""
    yield from table("exporter / openssl", keys, lambda key: f"{ratios[key]:.3f}")
    yield ""
    yield f"The lowest figure of all cells and all ten runs is {min(lowest.values()):.3f} of `openssl speed`'s."
    yield ""
    yield "![Throughput by block size, exporter and openssl speed, idle and busy](accuracy.svg)"
    yield ""


def repeatability(keys: Sequence[Key], idle: Sequence[Bench]) -> Iterator[str]:
    yield "## Repeatability"
    yield ""
    yield "How far the lowest best figure of ten idle runs lies below the highest:"
    yield ""
    yield from table("spread of ten runs", keys, lambda key: percent(spread(idle, key)))
    yield ""
    for title, chosen in (("16 bytes", [16]), ("64 bytes and more", [size for size in openssl.SIZES if size > 16])):
        worst = max(spread(idle, key) for key in keys if key[3] in chosen)
        yield f"- {title}: at most {percent(worst)}"
    yield ""


def disturbed(title: str, found: Collected, runs: Sequence[Bench], openssl_runs: Throughputs) -> Iterator[str]:
    keys, idle, yardstick = list(found.yardstick), found.idle, found.yardstick
    quiet = {key: statistics.median(run.best[key] for run in idle) for key in keys}
    large = [key for key in keys if key[3] >= 256]
    ratio = {key: min(run.best[key] for run in runs) / quiet[key] for key in keys}
    yield f"## {title}"
    yield ""
    yield "Lowest best figure of ten runs over the idle one:"
    yield ""
    yield from table("disturbed / idle", keys, lambda key: f"{ratio[key]:.3f}")
    yield ""
    yield f"- exporter, 256 bytes and more: at least {min(ratio[key] for key in large):.3f} of idle"
    shares = [openssl_runs[key] / yardstick[key] for key in large]
    yield f"- `openssl speed`, the same cells: {min(shares):.2f} to {max(shares):.2f} of idle"
    wall, before = (statistics.median(run.wall_seconds for run in each) for each in (runs, idle))
    yield f"- a run takes {wall:.1f} s instead of {before:.1f} s"
    yield ""


def silicon(idle: Sequence[Bench]) -> Iterator[str]:
    yield "## The silicon"
    yield ""
    clock = [run.hertz for run in idle]
    yield f"Core clock {max(clock) / 1e9:.4f} GHz, spread of ten runs {percent(1 - min(clock) / max(clock))}."
    yield ""
    yield "| | limit, MB/s | cycles a block | spread of ten runs | best libcrypto figure / limit |"
    yield "|---|---|---|---|---|"
    for algorithm, operation in idle[0].limits:
        limits = [run.limits[algorithm, operation] for run in idle]
        shares = [
            max(best for key, best in run.best.items() if key[:3] == (algorithm, operation, "hardware"))
            / run.limits[algorithm, operation]
            for run in idle
        ]
        cycles = 16 * max(clock) / max(limits)
        yield (
            f"| {algorithm} {operation} | {max(limits) / 1e6:.0f} | {cycles:.2f} | "
            f"{percent(1 - min(limits) / max(limits))} | {statistics.median(shares):.3f} |"
        )
    yield ""


def cost(keys: Sequence[Key], idle: Sequence[Bench]) -> Iterator[str]:
    own = statistics.median(run.cpu_seconds for run in idle)
    yield "## Cost"
    yield ""
    yield f"A run of these {len(keys)} cells takes {own:.2f} s of CPU. `openssl speed` needs"
    yield ""
    yield f"- {len(keys)} s at a second a cell, {len(keys) / own:.0f} times as much,"
    yield f"- {3 * len(keys)} s at its default of three, {3 * len(keys) / own:.0f} times as much."
    yield ""


if __name__ == "__main__":
    main()
