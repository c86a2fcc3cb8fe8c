"""The text file in real use: written by bench, read by a real node_exporter, scraped by a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemons import QUICK, daemon
from tests.tools import require

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parent.parent.parent
KILLS = 100


SHORT = (*(flag for flag in QUICK if "pause" not in flag), "--benchmark.operation=encrypt")


def bench(file: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "aes_exporter", "bench", "--format=prometheus", f"--output={file}", *SHORT)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return str(reply.read().decode())


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what the condition returns once that is true; a service that does not answer yet counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except (urllib.error.URLError, OSError):
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def started(log: Path, *command: str) -> Iterator[None]:
    """Run a program of which nothing is left afterwards."""
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def textfiles(tmp_path: Path) -> Path:
    """The directory in which node_exporter looks for text files."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    return folder


@pytest.fixture
def node(tmp_path: Path, textfiles: Path) -> Iterator[str]:
    """The address of a node_exporter with all that it has by default, and the textfile directory."""
    program, address = require("prometheus-node-exporter"), f"127.0.0.1:{free_port()}"
    flags = (f"--web.listen-address={address}", f"--collector.textfile.directory={textfiles}")
    with started(tmp_path / "node.log", program, *flags):
        until(lambda: get(f"http://{address}/metrics"))
        yield address


def prometheus_flags(folder: Path, targets: dict[str, str]) -> tuple[str, ...]:
    """Write a configuration that scrapes the targets by job every half second; return the flags for it."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
    configuration = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    return (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--log.level=warn",
    )


class Prometheus:
    """A Prometheus to ask."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}/api/v1/query?"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query."""
        answer = json.loads(get(self.url + urllib.parse.urlencode({"query": expression})))
        return answer["data"]["result"]  # type: ignore[no-any-return]

    def value(self, expression: str) -> float | None:
        """Return the value of the one sample of a query, None if there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None


def test_a_text_file_beside_a_daemon(tmp_path: Path, textfiles: Path, node: str) -> None:
    """A Prometheus that scrapes node_exporter with the file and a daemon has both, without a clash or an error.

    It sees how old the file is, and a newer file replaces what the older one said.
    """
    program, file, address = require("prometheus"), textfiles / "aes.prom", f"127.0.0.1:{free_port()}"
    subprocess.run(bench(file), check=True)
    with ExitStack() as stack:
        running = stack.enter_context(daemon(tmp_path, *QUICK))
        running.wait_until_ready()
        targets = {"node": node, "aes": running.url.removeprefix("http://"), "prometheus": address}
        flags = prometheus_flags(tmp_path, targets)
        stack.enter_context(started(tmp_path / "prometheus.log", program, f"--web.listen-address={address}", *flags))
        prometheus = Prometheus(address)
        until(lambda: prometheus.value("sum(up)") == 3)
        until(lambda: len(prometheus.query('aes_exporter_build_info{job=~"node|aes"}')) == 2)

        for job, series in (("node", 8), ("aes", 16)):
            assert len(prometheus.query(f'aes_throughput_bytes_per_second{{job="{job}"}}')) == series
        assert prometheus.value("node_textfile_scrape_error") == 0
        assert prometheus.query('aes_exporter_runs_total{job="node"}') == []
        assert prometheus.value('count(process_start_time_seconds{job="node"})') == 1

        first = prometheus.value('aes_exporter_last_run_timestamp_seconds{job="node"}')
        os.utime(file, (0, time.time() - 3600))
        age = "time() - node_textfile_mtime_seconds"
        until(lambda: (prometheus.value(age) or 0) > 3500)
        assert [sample["metric"]["file"] for sample in prometheus.query("node_textfile_mtime_seconds")] == [str(file)]
        subprocess.run(bench(file), check=True)
        until(lambda: (prometheus.value(age) or 3600) < 3500)
        until(lambda: prometheus.value('aes_exporter_last_run_timestamp_seconds{job="node"}') != first)

        assert prometheus.value("sum(min_over_time(up[10m]))") == 3
        assert prometheus.value("max_over_time(node_textfile_scrape_error[10m])") == 0
        for counter in ("sample_duplicate_timestamp", "sample_out_of_order", "sample_out_of_bounds"):
            assert prometheus.value(f"prometheus_target_scrapes_{counter}_total") == 0
    assert not re.search("level=(error|warn).*(textfile|collected metric)", (tmp_path / "node.log").read_text())


def shape(text: str) -> dict[str, int]:
    """Return how many samples each family has, for whoever reads the whole text without an error."""
    return {family.name: len(family.samples) for family in text_string_to_metric_families(text)}


def kills(what: str, file: Path, *flags: str) -> Iterator[tuple[bool, str]]:
    """Yield for each of a hundred kills whether there was something to kill, and what the file holds."""
    command = (sys.executable, "-m", "tests.kills", what, str(KILLS), str(file), *flags)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            killed, text = json.loads(line)
            yield killed, text
    assert process.returncode == 0


def test_a_kill_never_leaves_half_a_file(textfiles: Path, node: str) -> None:
    """However bench ends, at a hundred random moments, the file is as whole as before and node_exporter content."""
    file = textfiles / "aes.prom"
    subprocess.run(bench(file), check=True)
    whole, contents, killed = shape(file.read_text()), set(), 0
    for was_alive, text in kills("bench", file, *SHORT):
        killed += was_alive
        contents.add(text)
        assert text.endswith("\n")
        assert shape(text) == whole
        assert "node_textfile_scrape_error 0\n" in get(f"http://{node}/metrics?collect[]=textfile")

    assert killed > KILLS / 4
    assert len(contents) > 1
    assert {path.suffix for path in textfiles.iterdir()} <= {".prom", ".tmp"}


def test_a_kill_while_the_file_is_replaced(tmp_path: Path) -> None:
    """What does nothing but replace the file, killed a hundred times, leaves one of its contents whole."""
    found = {(len(text), *sorted(set(text))) for _, text in kills("write", tmp_path / "aes.prom")}

    assert found == {(200_000, "a"), (200_000, "b")}
