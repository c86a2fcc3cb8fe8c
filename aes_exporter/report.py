"""What `bench` makes of one run: a table for people, JSON and CSV for programs, a file, a progress bar.

A Host and a Run come in, text goes out; only `write` and `progress` touch the world. The Prometheus text is not made
here, because metrics.py alone knows the metric names.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from aes_exporter import __version__
from aes_exporter.cost import UNITS, comparisons, headline_engine, number
from aes_exporter.explanation import answer, explain, why
from aes_exporter.logs import printable
from aes_exporter.model import Failure, Host, Lane, NotApplicable, Run, Speedup
from aes_exporter.state import states
from aes_exporter.vocabulary import Cell, Library

_SIZES_SIDE_BY_SIDE = 6
_Key = TypeVar("_Key", int, str)

_RUN = ("started", "duration_seconds", "cpu_seconds", "rounds", "cpu", "steal_ratio", "throttled_periods")

_COLUMNS = (
    "engine",
    "algorithm",
    "operation",
    "path",
    "block_size",
    "bytes_per_second",
    "median_bytes_per_second",
    "cycles_per_byte",
    "implementation",
    "cpu_flags",
)


def table(host: Host, run: Run) -> str:
    """Return the run as plain text of 80 columns, laid out like the output of `openssl speed`.

    It shows best throughputs, in MB/s of 10^6 bytes, and how many times that of each masked path the hardware path
    has; then the lanes that were not measured, and why; in the end what AES costs and whether it is accelerated here.
    """
    output = io.StringIO()
    console = Console(file=output, width=80, color_system=None, markup=False, emoji=False, highlight=False)
    for part in _parts(host, run):
        if part.row_count:
            console.print(part)
            console.line()
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip().split("\n")) + "\n"


def _parts(host: Host, run: Run) -> Iterator[Table]:
    throughputs = [
        (figure.cell, lane, f"{figure.best / 1e6:.1f}")
        for lane, outcome in run.measured()
        for figure in outcome.figures
    ]
    speedups = [(s.cell, Lane(engine=s.engine, path=s.baseline), f"{s.ratio:.2f}x") for s in run.speedups()]
    yield _pairs(_facts(host, run))
    yield from _grids("MB/s", throughputs)
    yield from _grids("speed-up over", speedups)
    yield _pairs(_unmeasured(run))
    yield _pairs(_notes(throughputs))
    yield from _costs(run)
    yield _pairs(_answers(host, run))


def _facts(host: Host, run: Run) -> Iterator[tuple[str, str]]:
    yield "aes-exporter", __version__
    yield "CPU", _known(host.brand, host.architecture, host.hypervisor)
    yield from _flags(run)
    for engine, library in _libraries(run):
        yield engine, _known(library.name, library.provider and f"{library.provider} provider", library.file)
    pinned = "not pinned to a CPU" if run.cpu is None else f"on CPU {run.cpu}"
    yield "run", f"{run.rounds} rounds in {run.duration_seconds:.1f} s, {run.cpu_seconds:.1f} s of CPU time, {pinned}"


def _known(*facts: str) -> str:
    return ", ".join(filter(None, facts))


def _flags(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the CPU flags in effect by path, and by engine, too, where the engines of a path disagree."""
    engines: dict[tuple[str, str], list[str]] = {}
    for lane, measurement in run.measured():
        engines.setdefault((lane.path, " ".join(measurement.cpu_flags) or "none"), []).append(lane.engine)
    variants = Counter(path for path, _ in engines)
    for (path, flags), names in engines.items():
        yield f"{path} flags", flags if variants[path] == 1 else f"{flags} ({', '.join(names)})"


def _libraries(run: Run) -> Iterable[tuple[str, Library]]:
    """Return each engine's library once, in the order of the plan."""
    return dict.fromkeys((lane.engine, measurement.library) for lane, measurement in run.measured())


def _unmeasured(run: Run) -> Iterator[tuple[str, str]]:
    for lane, outcome in run.outcomes.items():
        if isinstance(outcome, Failure):
            yield _name(lane), f"failed: {why(outcome)}"
        elif isinstance(outcome, NotApplicable):
            yield _name(lane), f"not applicable: {why(outcome)}"


def _name(lane: Lane) -> str:
    return f"{lane.engine} {lane.path}"


def _heading(cell: Cell) -> str:
    return f"{cell.algorithm} {cell.operation}"


def _notes(throughputs: Sequence[tuple[Cell, Lane, str]]) -> Iterator[tuple[str, str]]:
    if throughputs:
        yield "MB/s", "10^6 bytes per second, fastest slices; openssl speed prints 10^3"
    if any(lane.engine == "cryptography" and cell.block_size < 1024 for cell, lane, _ in throughputs):
        yield "cryptography", "below 1024 B mostly what its Python binding costs per call"


def _costs(run: Run) -> Iterator[Table]:
    engine = headline_engine(run)
    found = comparisons(run, engine)
    groups = {
        _heading(comparison.cell): {
            _name(Lane(engine=engine, path=path)): {unit: number(convert(value)) for unit, convert in UNITS.items()}
            for path, value in comparison.throughputs.items()
        }
        for comparison in found
    }
    if found:
        yield _grid(f"cost at {found[0].cell.block_size} B", groups, {unit: unit for unit in UNITS})


def _answers(host: Host, run: Run) -> Iterator[tuple[str, str]]:
    for engine, state in states(run, host).items():
        explanation = explain(state, engine, run, host)
        yield engine, f"{answer(state)} {explanation.summary} {explanation.advice}"


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    pairs = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for name, text in rows:
        pairs.add_row(name, printable(text))
    return pairs


def _grids(title: str, entries: Iterable[tuple[Cell, Lane, str]]) -> Iterator[Table]:
    """Yield tables with block sizes as columns and lanes as rows, as many as the width makes of the sizes."""
    groups: dict[str, dict[str, dict[int, str]]] = {}
    for cell, lane, text in entries:
        rows = groups.setdefault(_heading(cell), {})
        rows.setdefault(_name(lane), {})[cell.block_size] = text
    sizes = sorted({size for rows in groups.values() for texts in rows.values() for size in texts})
    for start in range(0, len(sizes), _SIZES_SIDE_BY_SIDE):
        yield _grid(title, groups, {size: f"{size} B" for size in sizes[start : start + _SIZES_SIDE_BY_SIDE]})


def _grid(title: str, groups: Mapping[str, Mapping[str, Mapping[_Key, str]]], columns: Mapping[_Key, str]) -> Table:
    # Padded by hand, so that all grids line up: what `min_width` means has changed between versions of rich.
    headings = (Column(heading.rjust(7), justify="right") for heading in columns.values())
    grid = Table(title.ljust(23), *headings, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, rows in groups.items():
        grid.add_row(heading)
        for name, texts in rows.items():
            grid.add_row(f"  {name}", *(texts.get(key, "-") for key in columns))
    return grid


def json_text(host: Host, run: Run) -> str:
    """Return the run as one JSON object of schema 1; what is unknown is null, and NaN is refused with ValueError."""
    silicon = run.silicon
    report = {
        "schema": 1,
        "version": __version__,
        "run": {name: getattr(run, name) for name in _RUN} | {"quiet_rounds_ratio": silicon and silicon.quiet_ratio},
        "host": {**_identity(host), "hardware_state": states(run, host)},
        "engines": [{"engine": engine, **_engine(library)} for engine, library in _libraries(run)],
        "core_frequency_hertz": silicon and silicon.core_hertz,
        "limits": [asdict(limit) for limit in silicon.limits] if silicon else [],
        "results": [dict(zip(_COLUMNS, result, strict=True)) for result in _results(run)],
        "speedups": [_speedup(speedup) for speedup in run.speedups()],
        "failures": [
            {"engine": lane.engine, "path": lane.path, "reason": failure.reason, "detail": failure.detail}
            for lane, failure in run.failures()
        ],
        "not_applicable": [
            {"engine": lane.engine, "path": lane.path, "reason": outcome.reason}
            for lane, outcome in run.outcomes.items()
            if isinstance(outcome, NotApplicable)
        ],
    }
    return json.dumps(report, indent=2, allow_nan=False) + "\n"


def _identity(host: Host) -> dict[str, object]:
    facts = {name: None if value == "" else value for name, value in asdict(host).items()}
    return {**facts, "flags": None if host.flags is None else sorted(host.flags)}


def _engine(library: Library) -> dict[str, object]:
    return {"library": library.name, "file": library.file or None, "provider": library.provider or None}


def _speedup(speedup: Speedup) -> dict[str, object]:
    return {
        "engine": speedup.engine,
        **asdict(speedup.cell),
        "baseline": speedup.baseline,
        "ratio": speedup.ratio,
    }


def csv_text(_host: Host, run: Run) -> str:
    """Return the `results` of the JSON object as CSV with a line of headings; what is unknown is empty."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_results(run))
    return output.getvalue()


def _results(run: Run) -> Iterator[tuple[object, ...]]:
    """Yield a row of `_COLUMNS` for each figure."""
    for lane, measurement in run.measured():
        flags = ",".join(measurement.cpu_flags)
        for figure in measurement.figures:
            cell = figure.cell
            where = (lane.engine, cell.algorithm, cell.operation, lane.path, cell.block_size)
            cycles = run.cycles_per_byte(lane, figure)
            code = None if figure.implementation == "unknown" else figure.implementation
            yield (*where, figure.best, figure.median, cycles, code, flags)


def write(path: Path, data: bytes) -> None:
    """Put `data` into a file in one step: a reader meets the old content or the new, whole, even after a kill.

    The file gets mode 0644 whatever the umask is. A symbolic link stays, and what it points to is replaced. What is not
    a regular file (a FIFO, a device) or is open already (/dev/stdout) is written to, not replaced. Raises OSError; then
    no temporary file is left behind.
    """
    if _is_replaceable(path):
        _replace(Path(os.path.realpath(path)), data)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(data)


def _is_replaceable(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) and not _is_descriptor(path)


def _is_descriptor(path: Path) -> bool:
    """Return whether the path names an open file by way of /proc, as /dev/stdout does, which may be a regular file."""
    while path.is_symlink():
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        path = path.parent / path.readlink()
    return False


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".aes-exporter-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def progress(stream: TextIO | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs, and give the callable that moves it: (rounds done, rounds in all).

    It is shown on `stream`, standard error by default, only if that is a terminal, and is gone afterwards. It is drawn
    by the callable and by no thread of its own, which would take time from what is measured.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda _done, _total: None
        return
    bar = Progress(
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)
