"""The metric families: a Snapshot comes in, samples go out.

The only file that knows a metric name. Each family is declared once, in `PARTS`, and all else follows from that table,
docs/metrics.md included. Nothing here measures, waits or remembers, so a scrape is cheap and cannot fail.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aes_exporter import __version__
from aes_exporter.capabilities import ARCHITECTURES, Architecture
from aes_exporter.model import (
    BLOCK_SIZES,
    ENGINES,
    MASKED_PATHS,
    Figure,
    Measurement,
    NotApplicable,
    Run,
    Snapshot,
    WebConfigReading,
)
from aes_exporter.state import State, states
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Reason

Samples = Iterable[tuple[tuple[str, ...], float]]


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


def _cycles(run: Run) -> Samples:
    for lane, measurement in run.measured():
        for figure in measurement.figures:
            cycles = run.cycles_per_byte(lane, figure)
            if cycles is not None:
                cell = figure.cell
                yield (cell.algorithm, cell.operation, lane.path, str(cell.block_size)), cycles


def _limits(run: Run) -> Samples:
    for limit in run.silicon.limits if run.silicon else ():
        yield (limit.algorithm, limit.operation, limit.instructions), limit.bytes_per_second


def _implementations(run: Run) -> Samples:
    for lane, measurement in run.measured():
        for figure in measurement.figures:
            cell = figure.cell
            yield (lane.engine, cell.algorithm, cell.operation, lane.path, figure.implementation), 1


def _contention(run: Run) -> Samples:
    for lane, measurement in run.measured():
        if measurement.contention_ratio is not None:
            yield (lane.engine, lane.path), measurement.contention_ratio


def _states(snapshot: Snapshot) -> Samples:
    for engine, found in states(snapshot.run, snapshot.host).items() if snapshot.run else ():
        for state in State:
            yield (engine, state), state is found


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
            "Throughput in the fastest undisturbed time slices, in bytes per second: what CPU and library can do. "
            f"{_BINDING}",
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
            "Throughput on the hardware path over that on the masked path named by baseline, fastest time slices.",
            _speedups,
            ("engine", "algorithm", "operation", "block_size", "cpu_flags", "baseline"),
        ),
        _last_run(
            "aes_cycles_per_byte",
            "Core cycles per byte in the fastest time slices, by the clock measured in the same run; engine libcrypto.",
            _cycles,
            ("algorithm", "operation", "path", "block_size"),
        ),
        _last_run(
            "aes_silicon_limit_bytes_per_second",
            "What this CPU's AES instructions allow at the clock of the run, in bytes per second: measured by chains "
            "of them, without a library.",
            _limits,
            ("algorithm", "operation", "instructions"),
        ),
        _last_run(
            "aes_implementation_info",
            "Code that the library ran for at least one block size, always 1.",
            _implementations,
            ("engine", "algorithm", "operation", "path", "implementation"),
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
        Family(
            "aes_hardware_state",
            "1 for what became of the AES instructions of this host, as this engine finds them. Cached; last run.",
            _states,
            ("engine", "state"),
        ),
        _last_run(
            "aes_core_frequency_hertz",
            "Core clock during the run, in hertz, measured by a chain of additions.",
            lambda run: _one(run.silicon.core_hertz if run.silicon else None),
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
        _last_run(
            "aes_exporter_contention_ratio",
            "Share of the slices' wall time in which the worker was on no CPU, 0 to 1: high on a busy host or under a "
            "quota.",
            _contention,
            ("engine", "path"),
        ),
        _last_run(
            "aes_exporter_quiet_rounds_ratio",
            "Share of rounds in which the core clock read within 0.3 % of its best, 0 to 1: low means a busy sibling "
            "thread or a moving clock.",
            lambda run: _one(run.silicon.quiet_ratio if run.silicon else None),
        ),
        _last_run(
            "aes_exporter_steal_ratio",
            "Share of this host's CPU time that its hypervisor took during the run, 0 to 1; absent where unknown.",
            lambda run: _one(run.steal_ratio),
        ),
        _last_run(
            "aes_exporter_throttled_periods",
            "Periods of the run in which a CPU quota stopped this process; absent where unknown.",
            lambda run: _one(run.throttled_periods),
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
    "instructions": "`aes`: 128 bits at a time; `vaes`: 256 bits, which OpenSSL does not use for these modes",
    "implementation": "`aesni`, `vpaes`, `bsaes`, `table`, `armv8`, `power8`, ..., `unknown`",
    "state": "`failed`: not measured; `masked`: a capability variable on this host switches AES off; `hidden`: no flag "
    "shows the instructions, and they work; `absent`: this CPU has none; `unused`: the library does not use them; "
    "`accelerated`. The first that holds",
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
