"""What a scrape shows of a Snapshot."""

from __future__ import annotations

import math
import subprocess
import timeit
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from aes_exporter import exposition, metrics
from aes_exporter.model import Host, Lane, Snapshot, WebConfigReading
from aes_exporter.vocabulary import Library, Reason
from tests.refresh import GENERATED, GOLDEN, generate
from tests.snapshots import (
    CELLS,
    FRESH,
    HARDWARE,
    HOST,
    LANES,
    RUN,
    RUN_FAILED,
    RUN_PARTLY_FAILED,
    SNAPSHOT,
    SOFTWARE,
    measurement,
    run,
)
from tests.tools import require

generate_openmetrics: Callable[[Collector], bytes] = openmetrics_exposition.generate_latest
parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics_parser.text_string_to_metric_families

Labels = frozenset[tuple[str, str]]

WEB_CONFIG = {
    "aes_exporter_web_config_last_reload_successful",
    "aes_exporter_web_config_last_reload_success_timestamp_seconds",
}


def collector(snapshot: Snapshot) -> exposition.SnapshotCollector:
    return exposition.SnapshotCollector(lambda: snapshot)


def series(families: Iterable[Metric]) -> dict[str, dict[Labels, float]]:
    """Return the values by metric and labels, and refuse a label set that stands twice."""
    found: dict[str, dict[Labels, float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = frozenset(sample.labels.items())
        assert labels not in found.setdefault(sample.name, {}), f"{sample.name}{sample.labels} stands twice"
        found[sample.name][labels] = sample.value
    return found


def shown(snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
    return series(collector(snapshot).collect())


def labels(**values: str) -> Labels:
    return frozenset(values.items())


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_what_the_code_generates(path: Path) -> None:
    """The goldens and docs/metrics.md are up to date; `python -m tests.refresh` makes them so."""

    assert generate(path).decode() == path.read_text()


@pytest.mark.parametrize("snapshot", [FRESH, SNAPSHOT, FRESH.ended(RUN_PARTLY_FAILED)], ids=["fresh", "full", "partly"])
def test_both_formats_say_the_same_as_the_snapshot(snapshot: Snapshot) -> None:
    """Text and OpenMetrics exposition parse to the very samples collected, no label set twice, none NaN."""
    expected = shown(snapshot)

    assert expected == series(parse_text(generate_latest(collector(snapshot)).decode()))
    assert expected == series(parse_openmetrics(generate_openmetrics(collector(snapshot)).decode()))
    assert not any(math.isnan(value) for samples in expected.values() for value in samples.values())


@pytest.mark.parametrize("name", ["metrics.prom", "bench.prom"])
def test_promtool_finds_nothing_to_complain_of(name: str) -> None:
    """`promtool check metrics` accepts the exposition without a remark on names, types or help texts."""
    promtool = require("promtool")

    checked = subprocess.run(
        [promtool, "check", "metrics"], input=(GOLDEN / name).read_bytes(), capture_output=True, check=False
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_default_host_has_under_420_series() -> None:
    """A scrape of a host with all defaults stays below the number of series promised."""
    scrape = generate_latest(exposition.registry(lambda: SNAPSHOT)).decode()

    assert sum(not line.startswith("#") for line in scrape.splitlines()) < 420


def test_a_scrape_renders_fast() -> None:
    """Rendering takes milliseconds, so a scrape takes no time that a measurement would notice."""
    registry = exposition.registry(lambda: SNAPSHOT)

    assert min(timeit.repeat(lambda: generate_latest(registry), number=1, repeat=10)) < 0.2


def test_the_registry_adds_process_and_python() -> None:
    """A scrape of the daemon also shows its own process, its Python and its version."""
    scrape = generate_latest(exposition.registry(lambda: FRESH)).decode()

    assert {"process_start_time_seconds", "python_info", "aes_exporter_build_info"} <= set(series(parse_text(scrape)))


def test_describing_does_not_read_the_snapshot() -> None:
    """All families are registered by name, their samples untouched until the first scrape."""

    def unready() -> Snapshot:
        raise AssertionError("the snapshot was read")

    described = [metric.name for metric in exposition.SnapshotCollector(unready).describe()]

    assert [family.name.removesuffix("_total") for family in metrics.FAMILIES] == described
    assert len(set(described)) == len(described)


def test_a_scrape_reads_the_snapshot_once() -> None:
    """A scrape shows one Snapshot even if it is replaced in the middle."""
    snapshots = iter([SNAPSHOT])

    families = list(exposition.SnapshotCollector(lambda: next(snapshots)).collect())

    assert len(families) == len(metrics.FAMILIES)


def test_counters_start_at_0() -> None:
    """Every counter exists before the first run has ended, so that `increase()` sees the first event."""
    fresh = shown(FRESH)
    counters = [family.name for family in metrics.FAMILIES if family.type == "counter"]

    assert [{0.0}] * len(counters) == [set(fresh[name].values()) for name in counters]


@pytest.mark.parametrize(("lane", "possible"), [(HARDWARE, False), (SOFTWARE, True)])
def test_failures_are_counted_from_0_for_reasons_that_can_occur(lane: Lane, possible: bool) -> None:
    """Each reason has a series, but an ineffective mask only where there is a mask."""
    counted = shown(FRESH)["aes_exporter_failures_total"]
    reasons = {
        reason for reason in Reason if labels(engine=lane.engine, path=lane.path, reason=reason.value) in counted
    }

    assert set(Reason) - (set() if possible else {Reason.MASK_INEFFECTIVE}) == reasons


def test_failures_count_up() -> None:
    """A failure adds one to the counter of its engine, path and reason, and a later success takes nothing away."""
    counted = shown(FRESH.ended(RUN_FAILED).ended(RUN_FAILED).ended(RUN))["aes_exporter_failures_total"]

    assert counted[labels(engine="libcrypto", path="software", reason="spawn_failed")] == 2
    assert counted[labels(engine="libcrypto", path="software", reason="timeout")] == 0


def test_before_the_first_run_nothing_is_said_of_one() -> None:
    """Until a run has ended, exactly the families that are cached from one are absent, and the last successes."""
    absent = {family.name for family in metrics.FAMILIES} - set(shown(FRESH)) - WEB_CONFIG
    cached = {family.name for family in metrics.FAMILIES if family.help.endswith("Cached; last run.")}

    assert cached | {"aes_exporter_last_success_timestamp_seconds"} == absent


@pytest.mark.parametrize("successful", [True, False])
def test_the_web_config(successful: bool) -> None:
    """With a web config it is shown how the latest reading went and when one last went well; without one neither."""
    reading = WebConfigReading(successful=successful, last_success=12.5)
    found = shown(replace(FRESH, web_config=reading))

    assert [found[name] for name in sorted(WEB_CONFIG)] == [{labels(): 12.5}, {labels(): float(successful)}]
    assert not WEB_CONFIG & set(shown(FRESH))


def test_a_failed_lane_keeps_only_its_last_success() -> None:
    """A lane that failed is down, shows no figure of an earlier run, and says when it last succeeded."""
    found = shown(FRESH.ended(RUN).ended(RUN_PARTLY_FAILED))
    failed = labels(engine="libcrypto", path="software")

    assert found["aes_exporter_path_up"][failed] == 0
    assert found["aes_exporter_last_success_timestamp_seconds"][failed] == RUN.started + RUN.duration_seconds
    assert not any(failed <= key for key in found["aes_throughput_bytes_per_second"])
    assert not any(failed <= key for key in found["aes_throughput_median_bytes_per_second"])
    assert "aes_speedup_ratio" not in found


def test_a_lane_that_does_not_apply_is_neither_up_nor_down() -> None:
    """Where a path makes no sense on this host, there is no `path_up` and no last success."""
    found = shown(FRESH.ended(RUN_PARTLY_FAILED))
    lane = labels(engine="libcrypto", path="forced")

    assert lane not in found["aes_exporter_path_up"]
    assert lane not in found["aes_exporter_last_success_timestamp_seconds"]


def test_a_run_is_dated_by_its_end() -> None:
    """The timestamp of the latest run is when it ended, in Unix time."""

    assert shown(SNAPSHOT)["aes_exporter_last_run_timestamp_seconds"] == {labels(): 1772884843.75}


def test_an_unpinned_run_names_no_cpu() -> None:
    """`run_cpu` is absent rather than some number when the run was not pinned, and CPU 0 is a number."""

    assert "aes_exporter_run_cpu" not in shown(FRESH.ended(replace(RUN, cpu=None)))
    assert shown(FRESH.ended(replace(RUN, cpu=0)))["aes_exporter_run_cpu"] == {labels(): 0}


def test_a_run_under_way_is_shown() -> None:
    """`run_in_progress` is 1 between the beginning and the end of a run."""

    assert shown(FRESH.begun())["aes_exporter_run_in_progress"] == {labels(): 1}
    assert shown(FRESH.begun().ended(RUN))["aes_exporter_run_in_progress"] == {labels(): 0}


def test_missing_flags_are_0() -> None:
    """Every flag of the architecture has a series, so that an absent one can be alerted on."""
    arm = replace(HOST, architecture="aarch64", flags=frozenset({"asimd", "fp"}))

    assert shown(replace(FRESH, host=arm))["aes_cpu_flag"] == {
        labels(flag="asimd"): 1,
        **{labels(flag=flag): 0 for flag in ("aes", "pmull", "sha1", "sha2", "sha512")},
    }


@pytest.mark.parametrize("host", [replace(HOST, flags=None), replace(HOST, architecture="sparc64")])
def test_unknown_flags_are_not_0(host: Host) -> None:
    """Where nobody knows the flags, or which flags there could be, nothing is said, not even HELP."""

    assert b"aes_cpu_flag" not in generate_latest(collector(replace(FRESH, host=host)))


def test_an_engine_with_two_libraries_shows_both() -> None:
    """Lanes that loaded different libraries give a series each, lanes that agree give one."""
    other = Library(name="OpenSSL 3.5.0", file="/opt/lib/libcrypto.so.3")
    run = replace(RUN, outcomes={**RUN.outcomes, SOFTWARE: replace(measurement(SOFTWARE), library=other)})
    engines = [dict(key) for key in shown(FRESH.ended(run))["aes_engine_info"]]

    assert sorted((engine["engine"], engine["library"], engine["provider"]) for engine in engines) == [
        ("cryptography", "OpenSSL 4.0.3", "default"),
        ("libcrypto", "OpenSSL 3.0.19", "default"),
        ("libcrypto", "OpenSSL 3.5.0", ""),
    ]


@settings(deadline=None)
@given(brand=st.text(st.characters(exclude_categories=())))
def test_no_label_value_breaks_the_exposition(brand: str) -> None:
    """Any text, lone surrogates from undecodable file names included, is rendered as UTF-8 on one line."""
    expected = brand.encode(errors="backslashreplace").decode()
    scrape = generate_latest(collector(replace(FRESH, host=replace(HOST, brand=brand)))).decode()
    line = next(line for line in scrape.split("\n") if line.startswith("aes_cpu_info"))
    escaped = expected.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    assert f'brand="{escaped}"' in line


def test_names_that_differ_in_one_bad_byte_stay_apart() -> None:
    """Surrogates are spelled out, not replaced, so that two files cannot become one label set."""
    outcomes = {
        lane: replace(measurement(lane), library=Library(name="OpenSSL", file=f"/opt/{byte}/libcrypto.so.3"))
        for lane, byte in ((HARDWARE, "\udcfe"), (SOFTWARE, "\udcff"))
    }

    assert len(shown(FRESH.ended(replace(RUN, outcomes=outcomes)))["aes_engine_info"]) == 2


def test_a_textfile_has_nothing_of_a_daemon() -> None:
    """What node_exporter has itself, counters, the daemon's state and timestamps are left out; all else is in."""
    scrape = exposition.textfile(HOST, RUN).decode()
    left_out = {"aes_exporter_interval_seconds", "aes_exporter_run_in_progress", *WEB_CONFIG}
    gauges = {family.name for family in metrics.FAMILIES if family.type == "gauge"}

    assert gauges - left_out == set(series(parse_text(scrape)))
    assert all(sample.timestamp is None for family in parse_text(scrape) for sample in family.samples)


def test_a_textfile_of_a_failed_run_says_so() -> None:
    """A run without figures still writes which lanes are down, and no last success."""
    found = series(parse_text(exposition.textfile(HOST, RUN_FAILED).decode()))

    assert set(found["aes_exporter_path_up"].values()) == {0}
    assert len(found["aes_exporter_path_up"]) == len(LANES)
    assert "aes_exporter_last_success_timestamp_seconds" not in found


def test_every_help_text_is_one_sentence_for_a_table() -> None:
    """Help texts end like sentences and hold nothing that breaks a Markdown table."""

    assert [f.name for f in metrics.FAMILIES if not f.help.endswith(".") or {"|", "\n"} & set(f.help)] == []


def test_help_texts_warn_where_a_figure_misleads() -> None:
    """Who reads only HELP learns of the binding's cost, of containers and of cached values."""
    texts = {family.name: family.help for family in metrics.FAMILIES}

    assert "Python binding" in texts["aes_throughput_bytes_per_second"]
    assert "container" in texts["aes_engine_info"]
    assert texts["aes_speedup_ratio"].endswith("Cached; last run.")


def test_the_fleet_profile_has_under_150_series() -> None:
    """With one engine, three block sizes, and without what the README drops, a host has fewer than 150 series."""
    cells = tuple(cell for cell in CELLS if cell.block_size in (16, 1024, 8192))
    lanes = (HARDWARE, SOFTWARE)
    small = replace(FRESH, lanes=lanes).ended(run({lane: measurement(lane, cells) for lane in lanes}))

    lines = generate_latest(exposition.registry(lambda: small)).decode().splitlines()

    dropped = ("#", "aes_cycles_per_byte", "aes_implementation_info")
    assert sum(not line.startswith(dropped) for line in lines) < 150
