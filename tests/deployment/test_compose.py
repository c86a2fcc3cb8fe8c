"""The compose file: its form, what it mounts, and the stack brought up for real, but for Grafana."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.containers import Engine, get, wait_for
from tests.deployment.debian import BOOKWORM, ROOT, Suite, copy_checkout, run
from tests.tools import require

pytestmark = pytest.mark.timeout(900)

FILE = ROOT / "deploy" / "compose" / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]


def mounts(service: str) -> dict[str, Path]:
    """Return what of the project is mounted where."""
    pairs = (volume.split(":") for volume in SERVICES[service]["volumes"] if volume.startswith("."))
    return {pair[1]: (FILE.parent / pair[0]).resolve() for pair in pairs}


def test_the_form_is_right() -> None:
    """The file follows the compose specification."""
    run(require("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE)


def test_what_is_mounted_is_there() -> None:
    """Every file and folder that the services mount is in the project, and read-only for them."""
    for service in ("prometheus", "grafana"):
        assert [path for path in mounts(service).values() if not path.exists()] == []
        assert all(volume.endswith(":ro") for volume in SERVICES[service]["volumes"] if volume.startswith("."))


def test_grafana_finds_its_parts() -> None:
    """The dashboards are mounted where the provisioning looks for them, and its variables are set."""
    provisioning = mounts("grafana")["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "aes.yml").read_text())["providers"]
    used = re.findall(r"\$\{?(\w+)", (provisioning / "datasources" / "prometheus.yml").read_text())

    assert mounts("grafana")[provider["options"]["path"]] == ROOT / "grafana" / "dashboards"
    assert set(used) <= SERVICES["grafana"]["environment"].keys()
    assert SERVICES["grafana"]["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"


def test_only_this_host_can_reach_it() -> None:
    """Ports are published on the loopback, unless the environment says otherwise."""
    assert all(port.startswith("${PUBLISH:-127.0.0.1}:") for each in SERVICES.values() for port in each["ports"])


@pytest.fixture(scope="module")
def prometheus(
    engine: Engine, archive: Callable[[Suite], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The stack without Grafana, Prometheus being Debian's, and scraping sooner; yields the address of Prometheus."""
    folder = tmp_path_factory.mktemp("prometheus")
    copy_checkout(folder / "checkout")
    config = folder / "checkout" / "deploy" / "prometheus" / "prometheus.yml"
    config.write_text(re.sub("scrape_interval: 1m", "scrape_interval: 3s", config.read_text()))
    file = folder / "checkout" / FILE.relative_to(ROOT)
    shutil.copy(require("prometheus"), folder / "prometheus")
    (folder / "Dockerfile").write_text(
        f"FROM docker.io/library/python:{BOOKWORM.python}-slim-{BOOKWORM.name}\n"
        "COPY prometheus /bin/prometheus\n"
        "RUN mkdir /prometheus && chown nobody /prometheus\n"
        "USER nobody\n"
        'ENTRYPOINT ["/bin/prometheus"]\n'
    )
    engine("buildah", "build", "--pull-never", "--tag", SERVICES["prometheus"]["image"], folder)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"EXPORTER_PORT": str(one.getsockname()[1]), "PROMETHEUS_PORT": str(other.getsockname()[1])}
    stack = Engine(environment={**engine.environment, **ports})
    try:
        stack("podman-compose", "--file", file, "up", "--detach", "exporter", "prometheus")
        yield f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}"
    finally:
        stack("podman-compose", "--file", file, "down", "--volumes")


def ask(prometheus: str, path: str) -> Any:
    return json.loads(get(f"{prometheus}/api/v1/{path}") or '{"data": {}}')["data"]


def test_prometheus_scrapes_the_exporter(prometheus: str) -> None:
    """Prometheus finds the exporter by its name and has its figures."""
    value = wait_for(
        lambda: json.dumps(ask(prometheus, "query?query=count(aes_throughput_bytes_per_second)").get("result")),
        lambda text: text not in ("null", "[]"),
        lambda: json.dumps(ask(prometheus, "targets")),
        180,
    )
    (target,) = ask(prometheus, "targets")["activeTargets"]

    assert target["health"] == "up"
    assert int(json.loads(value)[0]["value"][1]) == 96


def test_prometheus_has_our_rules(prometheus: str) -> None:
    """Every group of our rule files is loaded and healthy."""
    files = mounts("prometheus")["/etc/prometheus/rules"].glob("*.yml")
    wanted = {group["name"] for file in files for group in yaml.safe_load(file.read_text())["groups"]}
    groups = ask(prometheus, "rules")["groups"]

    assert {group["name"] for group in groups} == wanted
    assert [rule for group in groups for rule in group["rules"] if rule["health"] == "err"] == []
