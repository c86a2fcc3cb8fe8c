"""Draw the dashboards with Grafana's UI library in headless Chromium, from a real Prometheus.

Run: python -m tests.pictures FOLDER [--all]      (npm packages and the build go to FOLDER, 450 MB; about five minutes)
Writes docs/pictures/*.png; with --all also every size and theme to FOLDER/pictures, to look at.

What is drawn: a real daemon on this machine, and 300 simulated hosts beside it (tests/monitoring/simulation.py).
There is no Grafana in it: panels are drawn by its component library, bar charts and state time lines by stand-ins in
panels.jsx.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.benchmarks.fleet import served
from tests.daemons import daemon
from tests.monitoring.documents import ROOT, RULE_FILES
from tests.monitoring.servers import Prometheus, prometheus
from tests.monitoring.simulation import Fleet, fleet
from tests.tools import require

HERE = Path(__file__).parent
HOSTS, SECONDS = 300, 240
CELL = {"engine": "libcrypto", "algorithm": "aes-128-cbc", "operation": "encrypt"}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A piece of a dashboard: rows of the grid from `first` on, as many as the height shows."""

    name: str
    dashboard: str
    first: int = 0
    width: int = 1280
    height: int = 720
    theme: str = "dark"

    def address(self, port: int, server: Prometheus, instance: str) -> str:
        choice = {"instance": instance, **CELL} if self.dashboard == "aes-host" else CELL
        parameters = {
            "dashboard": self.dashboard,
            "prometheus": f"http://127.0.0.1:{server.port}",
            "seconds": str(SECONDS),
            "theme": self.theme,
            "rows": f"{self.first}-999",
            **choice,
        }
        return f"http://127.0.0.1:{port}/index.html?{urllib.parse.urlencode(parameters)}"


README = (
    Picture(name="fleet", dashboard="aes-fleet"),
    Picture(name="host", dashboard="aes-host", height=1050),
)
SIZES = ((1280, 720), (1920, 1080))
EVERYTHING = tuple(
    Picture(
        name=f"{dashboard}-{width}-{theme}-{first}",
        dashboard=dashboard,
        first=first,
        width=width,
        height=height,
        theme=theme,
    )
    for dashboard, starts in (("aes-host", (0, 14, 25, 35, 50)), ("aes-fleet", (0, 17, 29, 50)))
    for first in starts
    for width, height in SIZES
    for theme in ("dark", "light")
    if first == 0 or (theme == "dark" and width == 1280)
)


def build(folder: Path) -> Path:
    """Build the page below a folder and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*HERE.glob("*.js*"), HERE / "index.html"):
        shutil.copy(path, folder)
    if not (folder / "node_modules").is_dir():
        command = (require("npm"), "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund")
        subprocess.run(command, cwd=folder, check=True)
    shutil.copytree(ROOT / "grafana/dashboards", folder / "public", dirs_exist_ok=True)
    subprocess.run((require("npx"), "vite", "build", "--logLevel=error"), cwd=folder, check=True)
    return folder / "dist"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def page(folder: Path) -> Iterator[int]:
    """Serve a folder on the loopback; yields the port."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def world(folder: Path) -> Iterator[Prometheus]:
    """Start a daemon, a fleet and a Prometheus that scrapes both every few seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    machines = fleet(HOSTS)
    with ExitStack() as stack:
        real = stack.enter_context(
            daemon(folder, "--benchmark.interval=15s", "--benchmark.pause=0", "--benchmark.rounds=20")
        )
        real.wait_until_ready()
        port = stack.enter_context(served(HOSTS, "default"))
        own = {"targets": [real.url.removeprefix("http://")], "labels": {"instance": "this-host"}}
        (folder / "targets.json").write_text(json.dumps([own, *Fleet(machines).targets(port)]))
        (folder / "rules").mkdir()
        for path in RULE_FILES:
            groups = [{**group, "interval": "5s"} for group in yaml.safe_load(path.read_text())["groups"]]
            quick = [
                [{key: each for key, each in rule.items() if key != "for"} for rule in group["rules"]]
                for group in groups
            ]
            changed = [{**group, "rules": rules} for group, rules in zip(groups, quick, strict=True)]
            (folder / "rules" / path.name).write_text(yaml.safe_dump({"groups": changed}))
        config = {
            "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
            "rule_files": [str(folder / "rules/*.yml")],
            "scrape_configs": [{"job_name": "aes", "file_sd_configs": [{"files": [str(folder / "targets.json")]}]}],
        }
        yield stack.enter_context(prometheus(folder, config))


def shoot(picture: Picture, address: str, target: Path, profile: Path) -> None:
    """Take a picture with a browser that nothing else uses."""
    command = (
        require("chromium"),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--window-size={picture.width},{picture.height}",
        "--virtual-time-budget=40000",
        f"--screenshot={target}",
        address,
    )
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="every size and theme, below FOLDER")
    parser.add_argument("--instance", default="this-host", help="whose host dashboard; node-0003 is a simulated one")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    built = build(folder)
    (folder / "pictures").mkdir(exist_ok=True)
    with world(folder / "world") as server, page(built) as port:
        time.sleep(SECONDS)
        jobs = [(each, ROOT / "docs/pictures" / f"{each.name}.png") for each in README]
        jobs += [(each, folder / "pictures" / f"{each.name}.png") for each in EVERYTHING if chosen.all]
        for picture, target in jobs:
            target.parent.mkdir(exist_ok=True)
            shoot(picture, picture.address(port, server, chosen.instance), target, folder / "profile")
            sys.stderr.write(f"{target}\n")


if __name__ == "__main__":
    main()
