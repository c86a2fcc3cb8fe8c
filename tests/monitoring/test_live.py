"""Every query of every panel, variable and rule, against a real Prometheus that scrapes real daemons."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemons import Daemon, daemon
from tests.monitoring.documents import (
    ALERTS,
    DASHBOARDS,
    RECORDS,
    expressions,
    ingredients,
    label_values,
    metrics,
    variables,
)
from tests.monitoring.servers import Prometheus, at_test_speed, free_port, prometheus, write_rules
from tests.tools import require

Json = dict[str, Any]

FLAGS = (
    "--benchmark.rounds=5",
    "--benchmark.slice=100us",
    "--benchmark.pause=0",
    "--benchmark.block-size=16,1024,8192",
    "--benchmark.interval=10s",
)
MASK = {**os.environ, "OPENSSL_ia32cap": "~0x200000200000000"}
MACHINE = {
    "aes_exporter_steal_ratio": "a kernel that counts steal",
    "aes_exporter_throttled_periods": "a control group that counts them",
    "aes_exporter_run_cpu": "a scheduler that lets itself be pinned",
    "aes_kernel_driver_info": "a kernel with /proc/crypto and an AES algorithm in use",
    "aes_silicon_limit_bytes_per_second": "x86-64 or aarch64",
    "aes_core_frequency_hertz": "x86-64 or aarch64",
    "aes_cycles_per_byte": "x86-64 or aarch64",
    "aes_exporter_quiet_rounds_ratio": "x86-64 or aarch64",
}
"""Metrics that not every machine has, and what they need: queries of missing ones run, but are not asked for data."""

WEEK, DAY = 7 * 86400, 86400


@dataclass(frozen=True)
class World:
    """A Prometheus and the instances that it scrapes, by what is wrong with them."""

    server: Prometheus
    instances: dict[str, str]
    families: frozenset[str]

    def excused(self, names: Iterable[str]) -> bool:
        """Return whether something rests on a metric that this machine does not have."""
        return bool((set(names) - self.families) & MACHINE.keys())


def address(instance: Daemon) -> str:
    return instance.url.removeprefix("http://")


def best(text: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Return throughput by the labels of instance_path:aes_throughput_bytes_per_second:max."""
    found: dict[tuple[tuple[str, str], ...], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "aes_throughput_bytes_per_second":
                kept = {name: value for name, value in sample.labels.items() if name not in {"block_size", "cpu_flags"}}
                found[tuple(kept.items())] = max(found[tuple(kept.items())], sample.value)
    return found


def history(instance: str, text: str, factor: float) -> Iterator[str]:
    """Yield OpenMetrics lines: what the instance reached yesterday and a week ago, `factor` times what it does now."""
    now = int(time.time())
    for labels, value in best(text).items():
        label = ",".join(f'{name}="{each}"' for name, each in (*labels, ("instance", instance), ("job", "aes")))
        for ago in (WEEK, DAY):
            for minute in range(-30, 10, 2):
                at = now - ago + 60 * minute
                yield f"instance_path:aes_throughput_bytes_per_second:max{{{label}}} {factor * value} {at}"


def backfill(folder: Path, lines: Iterable[str]) -> None:
    """Write samples of the past into a server's data."""
    name = "instance_path:aes_throughput_bytes_per_second:max"
    (folder / "past.om").write_text("\n".join((f"# TYPE {name} gauge", *lines, "# EOF", "")))
    command = (require("promtool"), "tsdb", "create-blocks-from", "openmetrics", folder / "past.om", folder / "data")
    subprocess.run(command, capture_output=True, check=True)


def few_hosts_are_a_kind(group: Json) -> Json:
    """Return a group at test speed whose kinds begin at one host, since there are only a few here."""
    changed = at_test_speed(group)
    for rule in changed["rules"]:
        if rule.get("record") == "global:aes_hosts_of_kind:threshold":
            rule["expr"] = "vector(1)"
    return changed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Daemons: well, under a mask, faster once, unable to measure, with a broken web config, down."""
    folder = tmp_path_factory.mktemp("live")
    web_config = folder / "web.yml"
    web_config.write_text("{}\n")
    kinds: dict[str, dict[str, Any]] = {
        "well": {},
        "masked": {"environment": MASK},
        "slower": {},
        "refusing": {"flags": (f"--web.config.file={web_config}", "--benchmark.engine=libcrypto")},
        "failing": {"flags": ("--benchmark.libcrypto=/nonexistent/libcrypto.so.3",)},
    }
    with ExitStack() as stack:
        daemons = {}
        for name, more in kinds.items():
            (folder / name).mkdir()
            flags = (*FLAGS, *more.get("flags", ()))
            started = daemon(folder / name, *flags, environment=more.get("environment"))
            daemons[name] = stack.enter_context(started)
            daemons[name].wait_until_ready()
        web_config.write_text("no such key: 1\n")
        daemons["refusing"].process.send_signal(signal.SIGHUP)
        instances = {name: address(each) for name, each in daemons.items()} | {"down": f"127.0.0.1:{free_port()}"}
        factors = {"well": 1.0, "slower": 3.0}
        past = (history(instances[name], daemons[name].metrics(), factor) for name, factor in factors.items())
        backfill(folder, (line for lines in past for line in lines))
        write_rules(folder / "rules", few_hosts_are_a_kind)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules/*.yml")],
            "scrape_configs": [{"job_name": "aes", "static_configs": [{"targets": list(instances.values())}]}],
        }
        server = stack.enter_context(prometheus(folder, config))
        server.wait_until(lambda: settled(server), "all rules evaluated")
        names = {each["metric"]["__name__"] for each in server.query('group by (__name__) ({job="aes"})')}
        yield World(server, instances, frozenset(names | RECORDS))


def settled(server: Prometheus) -> bool:
    """Return whether rules that rest on rules that rest on rules have had their turn, and rates two samples."""
    return bool(server.query("count_over_time(instance:aes_throughput_to_kind:min[1m]) > 3"))


def interpolate(expr: str, **chosen: str) -> str:
    """Return an expression with its variables filled in as Grafana does."""
    return re.sub(r"\$([a-z]\w*)", lambda match: chosen[match[1]], expr)


def escaped(*instances: str) -> str:
    """Return a multiple choice as Grafana writes it: a group of escaped values, the backslash doubled."""
    return "(" + "|".join(re.escape(each).replace("\\", "\\\\") for each in instances) + ")"


def relaxed(expr: str) -> str:
    """Return what a filter filters: `x < 3` is empty where all is well, `x` is not."""
    tree = promql_parser.parse(expr)
    while isinstance(tree, promql_parser.AggregateExpr | promql_parser.ParenExpr):
        tree = tree.expr
    if isinstance(tree, promql_parser.BinaryExpr) and isinstance(tree.rhs, promql_parser.NumberLiteral):
        return str(tree.lhs.prettify() if str(tree.op) in {"<", ">", "=="} else expr)
    return expr


CELL = {"engine": "libcrypto", "algorithm": "aes-128-cbc", "operation": "encrypt"}


def choices(world: World, name: str) -> list[dict[str, str]]:
    """Return what a user may choose: one host; on the fleet dashboard also two, and all."""
    well, masked = world.instances["well"], world.instances["masked"]
    if name == "aes-host":
        return [{"job": ".+", "instance": escaped(well), **CELL}]
    everyone = [".+", escaped(well, masked), escaped(well)]
    return [{"job": "(aes)", "instance": instance, **CELL} for instance in everyone]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_has_data(world: World, name: str) -> None:
    """Every query of every panel returns series, whatever is chosen."""
    empty = []
    for title, expr in expressions(DASHBOARDS[name]):
        if "ALERTS" in metrics(expr):  # empty is what one hopes for; below, alerts are asked for by name
            continue
        for chosen in choices(world, name):
            filled = interpolate(relaxed(expr), **chosen)
            if not world.server.query(filled) and not world.excused(ingredients(filled)):
                empty.append(f"{title}: {filled}")

    assert empty == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_over_time_has_data(world: World, name: str) -> None:
    """Range queries, as a panel over time makes them, return series too."""
    now = time.time()
    empty = []
    for title, expr in expressions(DASHBOARDS[name]):
        filled = interpolate(relaxed(expr), **choices(world, name)[0])
        span = {"start": str(now - 60), "end": str(now), "step": "5"}
        found = world.server.api("query_range", query=filled, **span)["result"]
        if not found and "ALERTS" not in metrics(expr) and not world.excused(ingredients(filled)):
            empty.append(f"{title}: {filled}")

    assert empty == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_offers_something(world: World, name: str) -> None:
    """Each variable has values, and its default is among them."""
    chosen = {"job": ".+", "instance": ".+"}
    for variable, definition in variables(DASHBOARDS[name]).items():
        selector, label = label_values(definition["query"]["query"])
        values = world.server.api(f"label/{label}/values", **{"match[]": interpolate(selector, **chosen)})
        assert values, variable
        default = definition.get("current", {}).get("value", values[0])
        assert default in {*values, "$__all"}
        chosen[variable] = chosen.get(variable, default)


def test_every_recorded_series_exists(world: World) -> None:
    """Every recording rule has a result."""
    empty = {record for record in RECORDS if not world.server.query(record) and not world.excused(ingredients(record))}

    assert empty == set()


def test_every_rule_evaluates(world: World) -> None:
    """No rule, recording or alerting, fails in a real Prometheus."""
    groups = world.server.api("rules")["groups"]
    states = {rule["name"]: (rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]}

    assert {name: state for name, state in states.items() if state != ("ok", "")} == {}
    assert states.keys() == ALERTS.keys() | RECORDS


def firing(world: World) -> dict[str, set[str]]:
    """Return the alerts that fire: name -> whose they are."""
    found = defaultdict(set)
    whose = {address: name for name, address in world.instances.items()}
    for each in world.server.query('ALERTS{alertstate="firing"}'):
        found[each["metric"]["alertname"]].add(whose.get(each["metric"].get("instance", ""), ""))
    return found


def test_alerts_fire_for_those_that_are_in_trouble(world: World) -> None:
    """Each alert fires for the daemon with its trouble and for no other; those without a reason fire for none."""
    fired = firing(world)

    assert fired["AesExporterDown"] == {"down"}
    assert fired["AesBenchmarkFailing"] == {"failing"}
    assert fired["AesThroughputRegressed"] == {"slower"}
    assert fired["AesWebConfigReloadFailed"] == {"refusing"}
    assert fired["AesExporterAbsent"] == fired["AesBenchmarkStale"] == fired["AesCpuFlagsChanged"] == set()


def test_a_mask_in_the_environment_fires(world: World) -> None:
    """A daemon started under OPENSSL_ia32cap calls its host masked, and the alert fires for it alone."""
    assert firing(world)["AesHardwareMasked"] == {"masked"}


def test_the_kernel_alert_follows_the_kernel(world: World) -> None:
    """It fires for exactly those daemons that show a slow kernel driver beside the flag."""
    slow = world.server.values(
        'aes_kernel_driver_info{accelerated="false"} and on (instance) aes_cpu_flag{flag="aes"} == 1', "instance"
    )
    whose = {address: name for name, address in world.instances.items()}

    assert firing(world)["AesKernelDriverNotAccelerated"] == {whose[instance] for instance in slow}


def test_recorded_series_can_be_federated(world: World, tmp_path: Path) -> None:
    """A second Prometheus gets the recorded series, labels kept, and nothing else: see docs/scale.md."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "federate",
                "honor_labels": True,
                "metrics_path": "/federate",
                "params": {"match[]": ['{__name__=~"job.*:aes_.*|instance:aes_.*|kind:aes_.*"}']},
                "static_configs": [{"targets": [f"127.0.0.1:{world.server.port}"]}],
            }
        ],
    }
    expr = 'job_brand:aes_throughput_bytes_per_second:median{job="aes", engine="libcrypto"}'
    with prometheus(tmp_path, config) as second:
        second.wait_until(lambda: second.query(expr), "federated series")
        assert second.values(expr, "brand").keys() == world.server.values(expr, "brand").keys()
        assert second.query("aes_throughput_bytes_per_second") == []
