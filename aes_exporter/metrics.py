"""The metric families: a Snapshot comes in; samples, their exposition and docs/metrics.md go out.

The only file that knows a metric name. Each family is declared once, in `PARTS`, and all else follows from that table.
Nothing here measures, waits or remembers, so a scrape is cheap and cannot fail.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aes_exporter import __version__
from aes_exporter.capabilities import ARCHITECTURES, Architecture
from aes_exporter.model import (
    ALGORITHMS,
    BLOCK_SIZES,
    ENGINES,
    MASKED_PATHS,
    OPERATIONS,
    Figure,
    Host,
    Measurement,
    NotApplicable,
    Reason,
    Run,
    Snapshot,
    WebConfigReading,
)

Samples = Iterable[tuple[tuple[str, ...], float]]
Metric = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family, and how its samples follow from a Snapshot: label values in the order of `labels`, and a value.

    `textfile` is False for what only a daemon has. Without samples the whole family is left out of a scrape.
    """

    name: str
    help: str
    samples: Callable[[Snapshot], Samples]
    labels: tuple[str, ...] = ()
    textfile: bool = True

    @property
    def type(self) -> str:
        """The type, which the name tells: counters, and only they, end in `_total`."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def metric(self, samples: Samples = ()) -> Metric:
        """Return the family with `samples`; those of equal labels become one."""
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        metric = kind(self.name, self.help, labels=self.labels)
        for labels, value in {tuple(map(_encodable, labels)): value for labels, value in samples}.items():
            metric.add_metric(labels, value)
        return metric


def _encodable(value: str) -> str:
    """Return a label value that UTF-8 can carry: a lone surrogate from a file name would fail the whole scrape."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()


def _one(value: float | None) -> Samples:
    return () if value is None else (((), value),)


def _last_run(name: str, text: str, samples: Callable[[Run], Samples], labels: tuple[str, ...] = ()) -> Family:
    """Return a family about the latest run, absent before there is one."""
    return Family(name, f"{text} Cached; last run.", lambda s: samples(s.run) if s.run else (), labels)


def _throughput(value: Callable[[Figure], float]) -> Callable[[Run], Samples]:
    def samples(run: Run) -> Samples:
        for lane, measurement in run.measured():
            flags = ",".join(measurement.cpu_flags)
            for figure in measurement.figures:
                cell = figure.cell
                labels = (lane.engine, cell.algorithm, cell.operation, lane.path, str(cell.block_size), flags)
                yield labels, value(figure)

    return samples


def _speedups(run: Run) -> Samples:
    for speedup in run.speedups():
        cell, flags = speedup.cell, ",".join(speedup.cpu_flags)
        labels = (speedup.engine, cell.algorithm, cell.operation, str(cell.block_size), flags, speedup.baseline)
        yield labels, speedup.ratio


def _engines(run: Run) -> Samples:
    for lane, measurement in run.measured():
        library = measurement.library
        yield (lane.engine, library.name, library.file, library.provider), 1


def _paths_up(run: Run) -> Samples:
    for lane, outcome in run.outcomes.items():
        if not isinstance(outcome, NotApplicable):
            yield (lane.engine, lane.path), isinstance(outcome, Measurement)


def _cpu(snapshot: Snapshot) -> Samples:
    host = snapshot.host
    yield (host.brand, host.vendor, host.architecture, host.family, host.model, host.stepping, host.hypervisor), 1


def _flags(snapshot: Snapshot) -> Samples:
    present = snapshot.host.flags
    if present is not None:
        for flag in ARCHITECTURES.get(snapshot.host.architecture, Architecture()).flags:
            yield (flag,), flag in present


def _kernel_drivers(snapshot: Snapshot) -> Samples:
    for driver in snapshot.host.kernel_drivers:
        yield (driver.algorithm, driver.driver, str(driver.accelerated).lower()), 1


def _failures(snapshot: Snapshot) -> Samples:
    possible = {
        (lane, reason): 0
        for lane in snapshot.lanes
        for reason in Reason
        if reason is not Reason.MASK_INEFFECTIVE or lane.path in MASKED_PATHS
    }
    for (lane, reason), count in {**possible, **snapshot.failures}.items():
        yield (lane.engine, lane.path, reason), count


def _web_config(value: Callable[[WebConfigReading], float]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: _one(value(snapshot.web_config)) if snapshot.web_config else ()


def _last_success(snapshot: Snapshot) -> Samples:
    for lane, timestamp in snapshot.last_success.items():
        yield (lane.engine, lane.path), timestamp


_BINDING = "Below about 1 KiB the engine cryptography mostly shows what its Python binding costs per call."

PARTS: Mapping[str, tuple[Family, ...]] = {
    "Measurements": (
        _last_run(
            "aes_throughput_bytes_per_second",
            f"Throughput in the shortest time slice, in bytes per second: what CPU and library can do. {_BINDING}",
            _throughput(lambda figure: figure.best),
            ("engine", "algorithm", "operation", "path", "block_size", "cpu_flags"),
        ),
        _last_run(
            "aes_throughput_median_bytes_per_second",
            f"Throughput in the median time slice, in bytes per second: what this host gives now. {_BINDING}",
            _throughput(lambda figure: figure.median),
            ("engine", "algorithm", "operation", "path", "block_size", "cpu_flags"),
        ),
        _last_run(
            "aes_speedup_ratio",
            "Throughput on the hardware path over that on the masked path named by baseline, shortest time slices.",
            _speedups,
            ("engine", "algorithm", "operation", "block_size", "cpu_flags", "baseline"),
        ),
    ),
    "The host": (
        Family(
            "aes_cpu_info",
            "Identity of the CPU, always 1; a label is empty where unknown.",
            _cpu,
            ("brand", "vendor", "architecture", "family", "model", "stepping", "hypervisor"),
        ),
        Family("aes_cpu_flag", "1 if the CPU shows this crypto-relevant flag, 0 if not.", _flags, ("flag",)),
        Family(
            "aes_kernel_driver_info",
            "Driver that the kernel would use for an algorithm, by /proc/crypto, always 1.",
            _kernel_drivers,
            ("algorithm", "driver", "accelerated"),
        ),
        _last_run(
            "aes_engine_info",
            "Library that was measured, always 1. In a container it is the image's library, not the host's.",
            _engines,
            ("engine", "library", "file", "provider"),
        ),
    ),
    "The exporter": (
        Family(
            "aes_exporter_build_info",
            "Version of the exporter and of the Python it runs on, always 1.",
            lambda _: [((__version__, platform.python_version()), 1)],
            ("version", "python_version"),
        ),
        Family("aes_exporter_runs_total", "Runs that ended, failed ones included.", lambda s: _one(s.runs)),
        Family("aes_exporter_runs_failed_total", "Runs that measured nothing.", lambda s: _one(s.runs_failed)),
        Family(
            "aes_exporter_runs_skipped_total",
            "Runs that were due and did not take place.",
            lambda s: _one(s.runs_skipped),
        ),
        Family(
            "aes_exporter_failures_total",
            "Runs in which this engine could not be measured on this path, by reason.",
            _failures,
            ("engine", "path", "reason"),
        ),
        _last_run(
            "aes_exporter_path_up",
            "1 if this engine was measured on this path, 0 if that failed; absent where it does not apply.",
            _paths_up,
            ("engine", "path"),
        ),
        Family(
            "aes_exporter_last_success_timestamp_seconds",
            "End of the latest run that measured this engine on this path, in seconds of Unix time.",
            _last_success,
            ("engine", "path"),
        ),
        _last_run(
            "aes_exporter_last_run_timestamp_seconds",
            "End of the run, whatever came of it, in seconds of Unix time.",
            lambda run: _one(run.started + run.duration_seconds),
        ),
        _last_run(
            "aes_exporter_run_duration_seconds",
            "Time from the start to the end of the run, in seconds.",
            lambda run: _one(run.duration_seconds),
        ),
        _last_run(
            "aes_exporter_rounds",
            "Complete rounds of the run, which is the number of time slices behind each figure.",
            lambda run: _one(run.rounds),
        ),
        Family(
            "aes_exporter_run_cpu_seconds_total",
            "CPU time spent on runs, in seconds: the workers' and the exporter's own share.",
            lambda s: _one(s.run_cpu_seconds),
        ),
        _last_run(
            "aes_exporter_run_cpu",
            "Number of the CPU that the run was pinned to; absent if it was not pinned.",
            lambda run: _one(run.cpu),
        ),
        Family(
            "aes_exporter_interval_seconds",
            "Configured time from the start of one run to the start of the next, in seconds.",
            lambda s: _one(s.interval_seconds),
            textfile=False,
        ),
        Family(
            "aes_exporter_run_in_progress",
            "1 while a run is under way, 0 otherwise.",
            lambda s: _one(s.in_progress),
            textfile=False,
        ),
        Family(
            "aes_exporter_web_config_last_reload_successful",
            "1 if the latest reading of the web config worked, 0 if an older one is in force; absent without one.",
            _web_config(lambda reading: reading.successful),
            textfile=False,
        ),
        Family(
            "aes_exporter_web_config_last_reload_success_timestamp_seconds",
            "When the web config in force was read, in seconds of Unix time; absent without one.",
            _web_config(lambda reading: reading.last_success),
            textfile=False,
        ),
    ),
}
FAMILIES = tuple(family for part in PARTS.values() for family in part)


class SnapshotCollector(Collector):
    """Shows whatever Snapshot `snapshot` returns at the moment of a scrape, and only that one during it."""

    def __init__(self, snapshot: Callable[[], Snapshot], families: Iterable[Family] = FAMILIES) -> None:
        self._snapshot = snapshot
        self._families = tuple(families)

    def describe(self) -> Iterator[Metric]:
        """Yield every family without samples, so that registering does not have to collect."""
        return (family.metric() for family in self._families)

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have samples."""
        snapshot = self._snapshot()
        metrics = (family.metric(family.samples(snapshot)) for family in self._families)
        return (metric for metric in metrics if metric.samples)


def registry(snapshot: Callable[[], Snapshot]) -> CollectorRegistry:
    """Return what a scrape of the daemon shows: the families of this file, `process_*` and `python_info`."""
    collectors = CollectorRegistry()
    collectors.register(SnapshotCollector(snapshot))
    ProcessCollector(registry=collectors)
    PlatformCollector(registry=collectors)
    return collectors


def textfile(host: Host, run: Run) -> bytes:
    """Return one run in the text format, for node_exporter's textfile directory.

    Nothing is in it that only a daemon can say or that node_exporter says of itself: counters would be those of one
    run, and a second `process_*` would be dropped with a complaint.
    """
    snapshot = Snapshot(host=host, lanes=tuple(run.outcomes), interval_seconds=0).ended(run)
    families = (family for family in FAMILIES if family.textfile and family.type != "counter")
    return generate_latest(SnapshotCollector(lambda: snapshot, families))


def _listed(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


_LABELS = {
    "engine": f"what was called: {_listed(ENGINES)}",
    "algorithm": f"{_listed(ALGORITHMS)}; on `aes_kernel_driver_info` the kernel's own names, such as `cbc(aes)`",
    "operation": _listed(OPERATIONS),
    "path": "`hardware`: the host as it is; `software`: AES instructions masked; `table`: SSSE3 masked, too; "
    "`forced`: the AES flag set that something hides",
    "baseline": f"the path that the hardware path is compared with: {_listed(MASKED_PATHS)}",
    "block_size": f"bytes per library call, by default {_listed(BLOCK_SIZES)}",
    "cpu_flags": "the crypto-relevant CPU flags in effect on that path, sorted, comma separated",
    "accelerated": "whether the driver uses AES instructions: `true`, `false`",
    "reason": _listed(Reason),
}


def document() -> str:
    """Return docs/metrics.md: every family and the labels that need explaining, in Markdown."""
    lines = ["# Metrics", "", "<!-- Written by `python -m tests.refresh` from aes_exporter/metrics.py. -->"]
    for part, families in PARTS.items():
        lines += ["", f"## {part}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        lines += [f"| `{f.name}` | {f.type} | {_listed(f.labels)} | {f.help} |" for f in families]
    lines += [
        "",
        "Besides these, `process_*` and `python_info` as every Python program with prometheus_client has them.",
    ]
    lines += ["", "## Labels", "", "| label | values |", "|---|---|"]
    lines += [f"| `{label}` | {meaning} |" for label, meaning in _LABELS.items()]
    return "\n".join(lines) + "\n"
