"""The metric families in Prometheus' formats: what a scrape shows, and what node_exporter's textfile directory takes.

Knows prometheus_client and no metric name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aes_exporter.metrics import FAMILIES, Family, Samples
from aes_exporter.model import Host, Run, Snapshot

Metric = CounterMetricFamily | GaugeMetricFamily


class SnapshotCollector(Collector):
    """Shows whatever Snapshot `snapshot` returns at the moment of a scrape, and only that one during it."""

    def __init__(self, snapshot: Callable[[], Snapshot], families: Iterable[Family] = FAMILIES) -> None:
        self._snapshot = snapshot
        self._families = tuple(families)

    def describe(self) -> Iterator[Metric]:
        """Yield every family without samples, so that registering does not have to collect."""
        return (_metric(family) for family in self._families)

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have samples."""
        snapshot = self._snapshot()
        metrics = (_metric(family, family.samples(snapshot)) for family in self._families)
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


def _metric(family: Family, samples: Samples = ()) -> Metric:
    """Return a family with `samples`; those of equal labels become one."""
    kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in {tuple(map(_encodable, labels)): value for labels, value in samples}.items():
        metric.add_metric(labels, value)
    return metric


def _encodable(value: str) -> str:
    """Return a label value that UTF-8 can carry: a lone surrogate from a file name would fail the whole scrape."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()
