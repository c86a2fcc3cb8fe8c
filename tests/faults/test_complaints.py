"""Complaints that users of other exporters had, made impossible: one real daemon, looked at the way they would."""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.daemons import QUICK, Daemon, daemon
from tests.faults.subjects import PATIENCE
from tests.processes import children

MEASUREMENT_LABELS = {
    "aes_throughput_bytes_per_second": "algorithm block_size cpu_flags engine operation path",
    "aes_throughput_median_bytes_per_second": "algorithm block_size cpu_flags engine operation path",
    "aes_speedup_ratio": "algorithm baseline block_size cpu_flags engine operation",
    "aes_cycles_per_byte": "algorithm block_size operation path",
    "aes_silicon_limit_bytes_per_second": "algorithm instructions operation",
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that has measured all but a library that there is not, and will not run again for an hour."""
    flags = (*(flag for flag in QUICK if "engine" not in flag), "--benchmark.libcrypto=/no/such/libcrypto.so")
    folder = tmp_path_factory.mktemp("complaints")
    with daemon(folder, *flags, "--web.listen-address=:0", "--benchmark.interval=30d") as started:
        started.wait_until(lambda: bool(started.url), PATIENCE)
        started.wait_until(lambda: started.value("aes_exporter_runs_total") == 1, PATIENCE)
        started.wait_until(lambda: not children(started.process.pid), PATIENCE)
        yield started


def samples(subject: Daemon) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(subject.metrics()) for sample in family.samples]


def test_scrapes_do_not_measure(subject: Daemon) -> None:
    """However many scrape, nothing is measured for them, and each is answered far within any scrape timeout."""
    for _ in range(50):
        began = time.monotonic()
        assert "aes_exporter_runs_total 1.0" in subject.metrics()
        assert time.monotonic() - began < 1
        assert children(subject.process.pid) == []


def test_no_sample_is_there_twice(subject: Daemon) -> None:
    """No two lines of a scrape have the same name and labels, which would make Prometheus refuse or mix them."""
    found = [(sample.name, *sorted(sample.labels.items())) for sample in samples(subject)]

    assert len(found) == len(set(found))


def test_no_sample_is_a_lie(subject: Daemon) -> None:
    """Nothing is NaN, infinite or negative, and no speed is zero, although an engine could not be measured."""
    found = samples(subject)

    assert all(math.isfinite(sample.value) and sample.value >= 0 for sample in found)
    assert all(sample.value > 0 for sample in found if sample.name in MEASUREMENT_LABELS)
    assert not any(sample.labels["engine"] == "libcrypto" for sample in found if "throughput" in sample.name)
    assert subject.failures("libcrypto/hardware", "engine_unavailable") == 1


def test_labels_outlive_updates(subject: Daemon) -> None:
    """What was measured has no version of a kernel, a library or ourselves among its labels."""
    for sample in samples(subject):
        if sample.name in MEASUREMENT_LABELS:
            assert " ".join(sorted(sample.labels)) == MEASUREMENT_LABELS[sample.name]


def test_cached_figures_are_dated(subject: Daemon) -> None:
    """A scrape says when the run it shows ended and when each lane was last measured, if it ever was."""
    last = subject.value("aes_exporter_last_run_timestamp_seconds") or 0
    dated = [
        sample.labels for sample in samples(subject) if sample.name == "aes_exporter_last_success_timestamp_seconds"
    ]

    assert time.time() - 600 < last <= time.time()
    assert {labels["engine"] for labels in dated} == {"cryptography"}


def test_its_own_cost_includes_the_workers(subject: Daemon) -> None:
    """The CPU time of runs is counted with that of the children, which process_cpu_seconds_total leaves out."""
    assert (subject.value("aes_exporter_run_cpu_seconds_total") or 0) > 0.05


def test_localhost_answers_in_both_families(subject: Daemon) -> None:
    """The default way to listen answers a health check that resolves localhost to ::1 as well as one to 127.0.0.1."""
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    port = re.findall(r"\[::\]:(\d+)", subject.log.read_text())
    for host in ("127.0.0.1", "[::1]"):
        with urllib.request.urlopen(f"http://{host}:{port[0]}/-/healthy", timeout=5) as reply:
            assert reply.status == 200
