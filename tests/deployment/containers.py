"""A container engine of the tests' own: podman, buildah, runc, with storage below a folder and Debian as base image."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.debian import ROOT, Suite, run
from tests.tools import require, require_root

TAG = "localhost/aes-exporter:latest"

# crun wants cgroup v2; systemd, the default manager, and higher limits than one has are not there on every machine.
_ENGINE = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{folder}/networks"
"""
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
_REGISTRIES = 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "disabled"\n'


@dataclass(frozen=True)
class Engine:
    """podman and buildah, with the environment that makes them use their own storage."""

    environment: dict[str, str]

    def __call__(self, program: str, *arguments: str | Path) -> str:
        """Run podman, buildah or what uses them; return what it printed."""
        return run(require(program), *arguments, env=self.environment, cwd=ROOT)

    def container(self, *arguments: str) -> Container:
        """Start a container in the background."""
        return Container(engine=self, id=self("podman", "run", "--detach", *arguments).strip())


@dataclass(frozen=True)
class Container:
    """A running container."""

    engine: Engine
    id: str

    def inspect(self, template: str) -> str:
        return self.engine("podman", "inspect", "--format", template, self.id).strip()

    def log(self) -> str:
        command, settings = (require("podman"), "logs", self.id), self.engine.environment
        finished = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
        return finished.stdout + finished.stderr

    def get(self, path: str) -> str:
        """Return the body of a request to the published port, from outside; empty where there is no answer."""
        address = self.engine("podman", "port", self.id, "10739/tcp").strip()
        return get(f"http://{address}{path}")

    def wait_for(self, path: str, condition: Callable[[str], bool] = bool, seconds: float = 120) -> str:
        """Return the first body that meets a condition; fail with the log if none does."""
        return wait_for(lambda: self.get(path), condition, self.log, seconds)


def get(url: str) -> str:
    """Return the body of a request; empty where there is no good answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return str(reply.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def wait_for(ask: Callable[[], str], condition: Callable[[str], bool], log: Callable[[], str], seconds: float) -> str:
    """Return the first answer that meets a condition; fail with a log if none does in time."""
    deadline = time.monotonic() + seconds
    while not condition(answer := ask()):
        assert time.monotonic() < deadline, f"{answer[-2000:]}\n{log()}"
        time.sleep(0.2)
    return answer


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Yield an engine that keeps everything below a folder, and remove all it made at the end."""
    require_root()
    for program in ("podman", "buildah", "runc", "iptables"):
        require(program)
    for name, text in (("containers", _ENGINE), ("storage", _STORAGE), ("registries", _REGISTRIES)):
        (folder / f"{name}.conf").write_text(text.format(folder=folder))
    chains = _chains()
    settings = {f"CONTAINERS_{name.upper()}_CONF": str(folder / f"{name}.conf") for name in ("storage", "registries")}
    settings |= {"CONTAINERS_CONF": str(folder / "containers.conf"), "BUILDAH_ISOLATION": "chroot"}
    ours = Engine(environment={**os.environ, **settings})
    try:
        yield ours
    finally:
        ours("podman", "rm", "--all", "--force", "--time=0")
        ours("podman", "system", "reset", "--force")
        _remove_chains(_chains() - chains)


def build(ours: Engine, archive: Path, wheels: Path, suite: Suite) -> None:
    """Build our image on base images made of a Debian system, in which pip finds its packages in a folder.

    They have the names of the official Python images, so that the Dockerfile is used as it is.
    """
    base, slim = (f"docker.io/library/python:{suite.python}-{kind}{suite.name}" for kind in ("", "slim-"))
    ours("podman", "import", "--change=ENV PIP_NO_INDEX=1", "--change=ENV PIP_FIND_LINKS=/wheels", archive, slim)
    working = ours("buildah", "from", "--pull-never", slim).strip()
    ours("buildah", "copy", working, wheels, "/wheels")
    for name in ("resolv.conf", "hosts"):
        ours("buildah", "copy", working, f"/etc/{name}", f"/etc/{name}")
    install = "apt-get update -qq && apt-get install -qq --no-install-recommends gcc libc6-dev python3-pip >/dev/null"
    ours("buildah", "run", working, "sh", "-c", install)
    ours("buildah", "commit", "--quiet", "--rm", working, base)
    ours("buildah", "build", "--pull-never", "--format=docker", "--layers", "--tag", TAG, *arguments(suite), ".")


def arguments(suite: Suite) -> list[str]:
    """Return the build arguments: base images of a Debian release, a time, a version."""
    given = {"PYTHON": suite.python, "DEBIAN": suite.name, "SOURCE_DATE_EPOCH": "1700000000", "VERSION": "1.2.3"}
    return [f"--build-arg={name}={value}" for name, value in given.items()]


def _chains() -> set[tuple[str, str]]:
    """Return table and name of the chains that container networks leave behind."""
    found = set()
    for table in ("nat", "filter"):
        lines = run("iptables", "--table", table, "--list-rules").splitlines()
        found |= {(table, line.split()[1]) for line in lines if line.startswith("-N NETAVARK")}
    return found


def _remove_chains(chains: set[tuple[str, str]]) -> None:
    for table in ("nat", "filter"):
        ours = {name for where, name in chains if where == table}
        for line in run("iptables", "--table", table, "--list-rules").splitlines():
            words = shlex.split(line)
            if words[0] == "-A" and words[-1] in ours and words[1] not in ours:
                run("iptables", "--table", table, "-D", *words[1:])
        for action in ("--flush", "--delete-chain"):
            for name in ours:
                run("iptables", "--table", table, action, name)
