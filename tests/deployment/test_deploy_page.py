"""docs/deploy.md, read by a machine: every command in it is run here, where it is meant to be run."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deployment import debian, machines
from tests.deployment.containers import Container, Engine, arguments, get, wait_for
from tests.deployment.debian import BOOKWORM, ROOT, Suite, copy_checkout, run
from tests.deployment.machines import Machine
from tests.deployment.manifests import load
from tests.tools import require

pytestmark = pytest.mark.timeout(900)

PAGE = (ROOT / "docs" / "deploy.md").read_text()
CHECKOUT = "/srv/aes-exporter"


def section(title: str) -> str:
    """Return the text of a section."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str = "sh") -> list[str]:
    """Return the code blocks of a section."""
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


TITLES = re.findall("^## (.*)$", PAGE, re.MULTILINE)


def test_the_table_leads_to_every_section() -> None:
    """Each row of the table links to a section, and each section has a row."""
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in TITLES]

    assert re.findall(r"\]\(#(.*?)\)", PAGE) == anchors


@pytest.mark.parametrize("title", TITLES)
def test_a_way_takes_under_five_commands(title: str) -> None:
    """No way to deploy takes five commands or more."""
    commands = [command for block in blocks(title) for command in re.split(r"&&|\n", block) if command.strip()]

    assert 0 < len(commands) < 5


@pytest.mark.parametrize("title", TITLES)
def test_a_way_is_run_by_a_test(title: str) -> None:
    """Every section's commands are run below."""
    assert f'blocks("{title}")' in Path(__file__).read_text()


@pytest.fixture(scope="module")
def box(
    archive: Callable[[Suite], Path], wheelhouse: Callable[[Suite], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A Debian system with a checkout of the project, a network of its own, and an index of packages on disk."""
    root = debian.unpack(archive(BOOKWORM), tmp_path_factory.mktemp("box") / "box")
    shutil.copytree(wheelhouse(BOOKWORM), root / "wheels")
    copy_checkout(root / CHECKOUT[1:])
    (root / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    with machines.booted(root, "--private-network") as running:
        yield running
    shutil.rmtree(root)


def test_one_box(box: Machine) -> None:
    """The service is installed and scraped."""
    (block,) = blocks("One box with systemd")
    install, scrape = block.splitlines()
    said = box("sh", "-euc", f"cd {CHECKOUT}; {install}")

    assert "aes-exporter.service is active" in said
    assert "aes_exporter_build_info" in box("sh", "-euc", scrape)


def test_only_node_exporter(box: Machine) -> None:
    """The timer runs, and the file is where node_exporter reads it."""
    folder = "/var/lib/prometheus/node-exporter"
    box("mkdir", "-p", folder)
    (block,) = blocks("Only node_exporter")
    said = box("sh", "-euc", f"cd {CHECKOUT}; {block}")

    assert "aes-exporter-textfile.timer" in said
    assert "aes_throughput_bytes_per_second" in (box.root / folder[1:] / "aes.prom").read_text()


def test_no_prometheus(box: Machine) -> None:
    """Figures are printed, and written; without a compiler they are those of one engine, with exit code 3."""
    (block,) = blocks("No Prometheus at all")
    *prepare, table, csv = (f"cd {CHECKOUT}; {line}" for line in block.splitlines())
    box("sh", "-euc", "\n".join(prepare))
    code, said = box.attempt("sh", "-euc", table)
    box.attempt("sh", "-euc", csv)

    assert code == 3
    assert "aes-128-cbc encrypt" in said
    assert "bytes_per_second" in (box.root / CHECKOUT[1:] / "aes.csv").read_text()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment variables of somebody who works in a fresh virtual environment."""
    venv.create(tmp_path / "environment", with_pip=True, symlinks=True)
    path = f"{tmp_path / 'environment' / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": "1700000000"}


def test_a_fleet(box: Machine, tmp_path: Path, environment: dict[str, str]) -> None:
    """The wheel is built and installed by the unit's installer, and Prometheus finds every host of the list."""
    build, install, targets = blocks("A fleet")
    copy_checkout(tmp_path / "checkout")
    run("sh", "-euc", build, cwd=tmp_path / "checkout", env=environment)
    shutil.copytree(tmp_path / "checkout" / "dist", box.root / CHECKOUT[1:] / "dist")
    assert "aes-exporter.service is active" in box("sh", "-euc", f"cd {CHECKOUT}; {install}")

    (tmp_path / "hosts.txt").write_text("web-1\nweb-2\n")
    run("sh", "-euc", targets, cwd=tmp_path)
    (config,) = blocks("A fleet", "yaml")
    with prometheus(tmp_path, config) as url:
        found = wait_for(lambda: get(f"{url}/api/v1/targets"), lambda text: "web-2" in text, lambda: "", 60)

    urls = {target["scrapeUrl"] for target in json.loads(found)["data"]["activeTargets"]}
    assert urls == {"http://web-1:10739/metrics", "http://web-2:10739/metrics"}


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[str]:
    """Run Prometheus in a folder, with a configuration; yield its address."""
    (folder / "prometheus.yml").write_text(config)
    run(require("promtool"), "check", "config", folder / "prometheus.yml")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = (require("prometheus"), "--config.file=prometheus.yml", f"--web.listen-address={address}")
    process = subprocess.Popen(command, cwd=folder)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def stand_ins(engine: Engine, tmp_path: Path) -> dict[str, str]:
    """An environment in which `docker` is podman, and `kubectl apply` and `docker push` are noted in files.

    There is neither a Docker engine nor a cluster to run the commands against; what they are given is looked at.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    scripts = {
        "docker": f"""case $1 in
            push) echo "$2" >>{tmp_path}/pushed ;;
            build) shift; exec buildah build --pull-never --layers --format=docker "$@" ;;
            compose) shift; exec {require("podman-compose")} "$@" ;;
            *) exec podman "$@" ;;
            esac""",
        "kubectl": f"""case $1 in
            apply) [ "$*" = "apply -f -" ]; echo --- >>{tmp_path}/applied; cat >>{tmp_path}/applied ;;
            *) exec {require("kubectl")} "$@" ;;
            esac""",
    }
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\nset -eu\n{script}\n")
        (tools / name).chmod(0o755)
    return {**engine.environment, "PATH": f"{tools}:{os.environ['PATH']}"}


def based_on_debian(block: str) -> str:
    """Return the commands with the base images that the tests have."""
    return block.replace("docker build", " ".join(("docker build", *arguments(BOOKWORM))))


def test_kubernetes(stand_ins: dict[str, str], tmp_path: Path) -> None:
    """The image that is pushed is the one in the DaemonSet, and rules and dashboards go to the cluster with it."""
    (block,) = blocks("Kubernetes")
    run("sh", "-euc", based_on_debian(block), cwd=ROOT, env=stand_ins)
    resources = load((tmp_path / "applied").read_text())
    (daemonset,) = (each for each in resources if each["kind"] == "DaemonSet")
    kinds = {each["kind"] for each in resources}

    assert daemonset["spec"]["template"]["spec"]["containers"][0]["image"] == (tmp_path / "pushed").read_text().strip()
    assert {"Namespace", "DaemonSet", "Service", "NetworkPolicy", "PodMonitor", "ConfigMap", "PrometheusRule"} == kinds
    assert {each["metadata"].get("namespace", "aes-exporter") for each in resources} == {"aes-exporter"}


def test_docker(engine: Engine, stand_ins: dict[str, str]) -> None:
    """The container runs, as confined as the command says, and its health check holds."""
    (block,) = blocks("Docker, and a Prometheus elsewhere")
    free = block.replace("--publish 10739:10739", "--publish 127.0.0.1::10739")  # several may run on this machine
    id_ = run("sh", "-euc", based_on_debian(free), cwd=ROOT, env=stand_ins).split()[-1]
    container = Container(engine=engine, id=id_)

    assert container.wait_for("/-/ready") == "aes-exporter is ready.\n"
    assert container.inspect("{{.HostConfig.ReadonlyRootfs}}") == "true"
    engine("podman", "rm", "--force", "--time=5", id_)


def test_the_compose_command() -> None:
    """The command names the file that test_compose.py brings up."""
    assert blocks("Docker, and all of it at once") == [
        "docker compose --file deploy/compose/compose.yaml up --detach\n"
    ]
    assert (ROOT / "deploy/compose/compose.yaml").exists()
