"""A real Prometheus for tests: started with the project's rules at test speed, queried over HTTP, ended for certain."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.documents import RULE_FILES
from tests.tools import require

Json = dict[str, Any]


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def api(self, path: str, **parameters: str) -> Any:
        """Return the data of an API call; an error fails the test with the server's words."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expr: str) -> list[Json]:
        """Return the samples that an expression has now."""
        return list(self.api("query", query=expr)["result"])

    def values(self, expr: str, label: str) -> dict[str, float]:
        """Return the values of an expression by a label."""
        return {each["metric"].get(label, ""): float(each["value"][1]) for each in self.query(expr)}

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = 40) -> None:
        """Wait for a condition; fail with what was waited for and the server's log."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"{what}\n{self.log.read_text()}"
            time.sleep(0.2)

    def ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2).close()
        except OSError:
            return False
        return True


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def at_test_speed(group: Json) -> Json:
    """Return a group of rules that is evaluated every second and fires at once."""
    rules = [{key: value for key, value in rule.items() if key != "for"} for rule in group["rules"]]
    return {**group, "interval": "1s", "rules": rules}


def write_rules(folder: Path, change: Callable[[Json], Json]) -> None:
    """Write the project's rules below a folder, each group changed by a function."""
    folder.mkdir()
    for path in RULE_FILES:
        groups = [change(group) for group in yaml.safe_load(path.read_text())["groups"]]
        (folder / path.name).write_text(yaml.safe_dump({"groups": groups}))


@contextmanager
def prometheus(folder: Path, config: Mapping[str, Any], *flags: str) -> Iterator[Prometheus]:
    """Start a server with a configuration; its data lie in `folder`/data."""
    program = require("prometheus")
    file, log, port = folder / "prometheus.yml", folder / "prometheus.log", free_port()
    file.write_text(yaml.safe_dump(dict(config)))
    command = (
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=30d",
        "--log.level=warn",
        *flags,
    )
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, stdout=stream)
    try:
        server = Prometheus(process, port, log)
        server.wait_until(server.ready, "ready")
        yield server
    finally:
        process.kill()
        process.wait()
