"""A simulated fleet scraped by a real Prometheus with our rules: what panels, rules, memory and disk cost.

Run: python -m tests.benchmarks.fleet [--hosts 1000] [--profile default|fleet] [--keep]     (about six minutes each)
Prints the rows of docs/performance.md. --keep leaves everything running until Ctrl-C, to look at it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.documents import DASHBOARDS, GROUPS, RULE_FILES, panels
from tests.monitoring.servers import Prometheus, free_port, prometheus
from tests.monitoring.simulation import BRANDS, STATES, Fleet, Host, fleet
from tests.monitoring.test_live import interpolate

README = Path(__file__).parent.parent.parent / "README.md"
INTERVAL = 30
HOUR, DAY = 3600, 86400
CELL = {"engine": "libcrypto", "algorithm": "aes-128-cbc", "operation": "encrypt"}
EVERYBODY = {"job": ".+", "instance": ".+", **CELL}


@contextmanager
def served(hosts: int, profile: str) -> Iterator[int]:
    """Serve a fleet from a process of its own; yields the port."""
    port = free_port()
    command = (sys.executable, "-m", "tests.benchmarks.fleet", f"--hosts={hosts}", f"--profile={profile}")
    process = subprocess.Popen((*command, f"--serve={port}"))
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def past(hosts: list[Host]) -> Iterator[str]:
    """Yield OpenMetrics lines of recorded series, so that last week and panels over time have work to do."""
    now = int(time.time())
    hour = [now - ago + minute * 60 for ago in (DAY, 7 * DAY) for minute in range(-60, 5)]
    yield "# TYPE instance_path:aes_throughput_bytes_per_second:max gauge"
    for host in hosts:
        for algorithm in ("aes-128-cbc", "aes-128-ecb"):
            for operation in ("encrypt", "decrypt"):
                labels = f'engine="libcrypto",algorithm="{algorithm}",operation="{operation}",path="hardware"'
                series = (
                    f'instance_path:aes_throughput_bytes_per_second:max{{job="aes",instance="{host.name}",{labels}}}'
                )
                yield from (f"{series} {1.2e9 * host.ratio} {at}" for at in hour)
    evening = range(now - 6 * HOUR, now - 120, 240)
    yield "# TYPE job_problem:aes_hosts:count gauge"
    for problem in ("not accelerated", "slow", "contended", "stale", "failing", "down"):
        yield from (f'job_problem:aes_hosts:count{{job="aes",problem="{problem}"}} 3 {at}' for at in evening)
    yield "# TYPE job_state:aes_hosts:count gauge"
    for state in STATES:
        count = sum(host.state == state for host in hosts)
        yield from (
            f'job_state:aes_hosts:count{{job="aes",engine="libcrypto",state="{state}"}} {count} {at}' for at in evening
        )
    yield "# TYPE job_brand:aes_throughput_bytes_per_second:median gauge"
    for brand, (_, speed, _) in BRANDS.items():
        labels = f'job="aes",brand="{brand}",' + ",".join(f'{name}="{value}"' for name, value in CELL.items())
        yield from (
            f"job_brand:aes_throughput_bytes_per_second:median{{{labels}}} {speed * 1.2e9} {at}" for at in evening
        )


def backfill(folder: Path, hosts: list[Host]) -> None:
    with (folder / "past.om").open("w") as stream:
        stream.writelines(f"{line}\n" for line in past(hosts))
        stream.write("# EOF\n")
    command = ("promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "past.om", folder / "data")
    subprocess.run(command, capture_output=True, check=True)


def dropped() -> dict[str, Any]:
    """Return what the README tells Prometheus to drop in the fleet profile."""
    (block,) = re.findall(r"```yaml\n( *metric_relabel_configs:.*?)```", README.read_text(), re.DOTALL)
    return dict(yaml.safe_load(block))


def configuration(folder: Path, port: int, hosts: list[Host], profile: str) -> dict[str, Any]:
    """Return a configuration that scrapes and evaluates every 30 seconds, with the rules as they are shipped."""
    (folder / "targets.json").write_text(json.dumps(Fleet(hosts, profile).targets(port)))
    (folder / "rules").mkdir()
    for path in RULE_FILES:
        groups = yaml.safe_load(path.read_text())["groups"]
        quick = [{**group, "interval": f"{INTERVAL}s"} for group in groups]
        (folder / "rules" / path.name).write_text(yaml.safe_dump({"groups": quick}))
    return {
        "global": {"scrape_interval": f"{INTERVAL}s", "evaluation_interval": f"{INTERVAL}s"},
        "rule_files": [str(folder / "rules/*.yml")],
        "scrape_configs": [
            {"job_name": "aes", "file_sd_configs": [{"files": [str(folder / "targets.json")]}]}
            | (dropped() if profile == "fleet" else {}),
        ],
    }


@contextmanager
def observed(hosts: int, profile: str) -> Iterator[Prometheus]:
    """Start a fleet and a Prometheus that has seen a few scrapes of all of it."""
    machines = fleet(hosts)
    with tempfile.TemporaryDirectory() as name, served(hosts, profile) as port:
        folder = Path(name)
        backfill(folder, machines)
        config = configuration(folder, port, machines, profile)
        with prometheus(folder, config) as server:
            server.wait_until(lambda: scraped(server) >= 0.99 * hosts, "scrapes of all hosts", 60)
            time.sleep(3 * INTERVAL)
            yield server


def scraped(server: Prometheus) -> float:
    return sum(float(each["value"][1]) for each in server.query('sum(up{job="aes"})'))


def own(server: Prometheus) -> dict[str, float]:
    """Return the server's own metrics, those of a rule group by its name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}


def row(what: str, figure: str, goal: str = "") -> None:
    print(f"| {what} | {figure} | {goal} |", flush=True)


def panel_seconds(server: Prometheus, panel: dict[str, Any]) -> float:
    """Return how long the queries of a panel take one after the other, six hours of them over time; best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for target in panel["targets"]:
            expr = interpolate(target["expr"], **EVERYBODY)
            if target["instant"]:
                server.query(expr)
            else:
                end = time.time()
                server.api("query_range", query=expr, start=str(end - 6 * HOUR), end=str(end), step="60")
        times.append(time.perf_counter() - start)
    return min(times)


def report(server: Prometheus, hosts: int, profile: str) -> None:
    samples = float(server.query('sum(scrape_samples_post_metric_relabeling{job="aes"})')[0]["value"][1])
    figures = own(server)
    series = figures["prometheus_tsdb_head_series"]
    row(f"hosts, profile {profile}", f"{scraped(server):.0f} up of {hosts}")
    row("series a host, kept", f"{samples / scraped(server):.0f}", "420" if profile == "default" else "150")
    row("series in all, with recorded ones", f"{series:.0f}")
    row("memory of Prometheus", f"{figures['process_resident_memory_bytes'] / 1e6:.0f} MB")
    time.sleep(2 * INTERVAL)
    busy = own(server)["process_cpu_seconds_total"] - figures["process_cpu_seconds_total"]
    row(f"CPU of Prometheus for scrapes and rules every {INTERVAL} s", f"{busy / 2:.1f} s each")
    slowest = sorted((panel_seconds(server, panel), panel["title"]) for panel in panels(DASHBOARDS["aes-fleet"]))
    for seconds, title in slowest[-3:]:
        row(f"fleet panel: {title}", f"{seconds * 1000:.0f} ms", "500 ms")


def report_rules(server: Prometheus) -> None:
    """Print how long the groups took to evaluate, by the wall, while everything was scraped; the median of five."""
    seen: dict[str, list[float]] = {group["name"]: [] for group in GROUPS}
    for _ in range(5):
        time.sleep(INTERVAL)
        for series, value in own(server).items():
            if series.startswith("prometheus_rule_group_last_duration_seconds{"):
                seen[series.rpartition(";")[2].removesuffix('"}')].append(value)
    for seconds, name in sorted((statistics.median(seconds), name) for name, seconds in seen.items()):
        row(f"rule group {name}, one evaluation", f"{seconds:.2f} s, at most {max(seen[name]):.2f} s", "2 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--profile", choices=["default", "fleet"], default="default")
    parser.add_argument("--serve", type=int, help="only serve the fleet on this port")
    parser.add_argument("--keep", action="store_true", help="keep running and print the address of Prometheus")
    chosen = parser.parse_args()
    if chosen.serve:
        Fleet(fleet(chosen.hosts), chosen.profile).run(chosen.serve)
    with observed(chosen.hosts, chosen.profile) as server:
        report(server, chosen.hosts, chosen.profile)
        report_rules(server)
        if chosen.keep:
            print(f"http://127.0.0.1:{server.port}", flush=True)
            while True:
                time.sleep(60)


if __name__ == "__main__":
    main()
