"""The landing page: a Snapshot and the time in, HTML out, complete in itself and without a script.

Here is what the template is given; how it looks is the business of templates/. The links in it are relative, for the
sake of proxies. jinja2 is imported with the first page, since most daemons never show one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from aes_exporter import __version__, chart
from aes_exporter.capabilities import ARCHITECTURES, Architecture
from aes_exporter.cost import UNITS, comparisons, headline_engine, number
from aes_exporter.explanation import Explanation, answer, explain, why
from aes_exporter.logs import printable
from aes_exporter.model import Figure, Host, Measurement, NotApplicable, Run, Snapshot
from aes_exporter.state import states
from aes_exporter.vocabulary import Library

if TYPE_CHECKING:
    from jinja2 import Template

_RELOAD_SECONDS = 5
_OLD_INTERVALS = 3
_SPANS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the AES instructions for an engine, in words and as a state ("" where it is not known)."""

    engine: str
    state: str
    answer: str
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """An algorithm and operation of an engine: by path and block size its figures, by baseline and size the ratios."""

    algorithm: str
    operation: str
    figures: Mapping[str, Mapping[int, Figure]]
    speedups: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All that a run measured of an engine."""

    engine: str
    library: Library
    sizes: tuple[int, ...]
    groups: tuple[Group, ...]


def page(snapshot: Snapshot, telemetry_path: str, *, now: float, seconds_to_next: float) -> str:
    """Return the whole page as HTML; `now` is Unix time, and the next run is due in `seconds_to_next`."""
    run, host = snapshot.run, snapshot.host
    listed = ARCHITECTURES.get(host.architecture, Architecture()).flags
    return _template().render(
        version=__version__,
        telemetry_path=telemetry_path,
        reload_seconds=_RELOAD_SECONDS,
        snapshot=snapshot,
        run=run,
        host=host,
        absent_flags=[flag for flag in listed if flag not in (host.flags or ())],
        now=now,
        next_run=now + seconds_to_next,
        **(_about(run, snapshot, now) if run else {"tables": (), "exemptions": {}}),
    )


def _about(run: Run, snapshot: Snapshot, now: float) -> dict[str, Any]:
    """Return what there is to show once a run has ended."""
    engine = headline_engine(run)
    tables = [*_tables(run)]
    ended = run.started + run.duration_seconds
    return {
        "engine": engine,
        "verdicts": sorted(_verdicts(run, snapshot.host), key=lambda verdict: verdict.engine != engine),
        "cards": _cards(run, next((table for table in tables if table.engine == engine), None)),
        "tables": tables,
        "failures": dict(run.failures()),
        "exemptions": {lane: each for lane, each in run.outcomes.items() if isinstance(each, NotApplicable)},
        "ended": ended,
        "old": now - ended > _OLD_INTERVALS * snapshot.interval_seconds,
    }


def _verdicts(run: Run, host: Host) -> Iterator[Verdict]:
    known = states(run, host)
    for engine in dict.fromkeys(lane.engine for lane in run.outcomes):
        state = known.get(engine)
        explanation = explain(state, engine, run, host)
        yield Verdict(engine=engine, state=state or "", answer=answer(state), explanation=explanation)


def _tables(run: Run) -> Iterator[Table]:
    engines: dict[str, dict[str, Measurement]] = {}
    for lane, measurement in run.measured():
        engines.setdefault(lane.engine, {})[lane.path] = measurement
    for engine, paths in engines.items():
        cells = [figure.cell for measurement in paths.values() for figure in measurement.figures]
        headings = dict.fromkeys((cell.algorithm, cell.operation) for cell in cells)
        yield Table(
            engine=engine,
            library=next(iter(paths.values())).library,
            sizes=tuple(sorted({cell.block_size for cell in cells})),
            groups=tuple(_group(run, engine, paths, heading) for heading in headings),
        )


def _group(run: Run, engine: str, paths: Mapping[str, Measurement], heading: tuple[str, str]) -> Group:
    figures = {
        path: {f.cell.block_size: f for f in each.figures if (f.cell.algorithm, f.cell.operation) == heading}
        for path, each in paths.items()
    }
    speedups: dict[str, dict[int, float]] = {}
    for each in run.speedups():
        if each.engine == engine and (each.cell.algorithm, each.cell.operation) == heading:
            speedups.setdefault(each.baseline, {})[each.cell.block_size] = each.ratio
    return Group(algorithm=heading[0], operation=heading[1], figures=figures, speedups=speedups)


def _cards(run: Run, table: Table | None) -> list[dict[str, Any]]:
    """Return for each group of a table its cost at one block size, and charts on the same axes for all groups."""
    if table is None or not table.groups:
        return []
    lines = [
        {path: {size: figure.best for size, figure in by_size.items()} for path, by_size in group.figures.items()}
        for group in table.groups
    ]
    bars = [next(iter(group.speedups.items()), None) for group in table.groups]
    powers = chart.decades([value for line in lines for series in line.values() for value in series.values()])
    highest = max((ratio for bar in bars if bar for ratio in bar[1].values()), default=1.0)
    costs = {(each.cell.algorithm, each.cell.operation): each for each in comparisons(run, table.engine)}
    return [
        {
            "group": group,
            "cost": costs[group.algorithm, group.operation],
            "throughput": chart.throughputs(line, powers),
            "speedup": bar and chart.speedups(*bar, max(1.0, highest)),
        }
        for group, line, bar in zip(table.groups, lines, bars, strict=True)
    ]


@cache
def _template() -> Template:
    import jinja2  # noqa: PLC0415  several megabytes that a daemon without visitors saves

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aes_exporter"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "span": _span, "time": _time, "why": why}
    environment.globals |= {"units": UNITS, "chart": chart}
    return environment.get_template("page.html")


def _finalized(value: object) -> object:
    """Return a value as it is put into the page; text of the page itself, which has `__html__`, stays as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _span(seconds: float) -> str:
    """Return a time span in words, in the largest unit of which it has two, or in seconds."""
    unit, size = next(((unit, size) for unit, size in _SPANS if seconds >= 2 * size), _SPANS[-1])
    return f"{max(0, int(seconds // size))} {unit}"


def _time(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M:%S} UTC"
