"""The release command and the workflow that runs it; what they build, installed on clean systems."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aes_exporter import __version__
from tests.deployment import debian
from tests.deployment.conftest import build_release
from tests.deployment.debian import ROOT, Suite, run
from tests.tools import require, require_root

pytestmark = pytest.mark.timeout(600)

WORKFLOWS = ROOT / ".github" / "workflows"


def test_what_a_release_consists_of(release: Path) -> None:
    """An sdist, a wheel for many Linux systems of this architecture, a pure wheel, and checksums that are right."""
    machine = os.uname().machine
    tags = f"manylinux_2_17_{machine}.manylinux2014_{machine}"
    names = {re.sub(r"manylinux.*(?=\.whl)", tags, path.name) for path in release.iterdir()}

    assert names == {
        f"aes_exporter-{__version__}.tar.gz",
        f"aes_exporter-{__version__}-py3-none-any.whl",
        f"aes_exporter-{__version__}-py3-none-{tags}.whl",
        "SHA256SUMS",
    }
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release).count("OK") == 3


def test_the_same_source_gives_the_same_bytes(release: Path, tmp_path: Path) -> None:
    """Built again, elsewhere, under another umask, every file of the release is the same."""
    (tmp_path / "work").mkdir()
    build_release(tmp_path / "dist", TMPDIR=str(tmp_path / "work"), umask=0o077)

    assert (tmp_path / "dist" / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    assert list((tmp_path / "work").iterdir()) == []


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """A release is not mixed with what lies there from an earlier one."""
    (tmp_path / "old.whl").touch()
    command = (ROOT / "deploy" / "release.sh", tmp_path)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (finished.returncode, finished.stderr) == (1, f"release.sh: {tmp_path} is not empty\n")


@pytest.fixture(scope="module")
def clean(
    suite: Suite,
    archive: Callable[[Suite], Path],
    wheelhouse: Callable[[Suite], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """A function that runs a shell script on a clean system, which has our release and no compiler."""
    require_root()
    nspawn = require("systemd-nspawn")
    root = debian.unpack(archive(suite), tmp_path_factory.mktemp("clean") / suite.name)
    shutil.copytree(wheelhouse(suite), root / "wheels")
    options = ("--quiet", "--register=no", "--keep-unit", "--console=pipe", f"--directory={root}")

    def execute(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run((nspawn, *options, "sh", "-euc", script), capture_output=True, text=True, check=False)

    yield execute
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("name", "code", "measured"),
    [("*-manylinux*.whl", 0, {"libcrypto", "cryptography"}), ("*.tar.gz", 3, {"cryptography"})],
    ids=["wheel", "sdist"],
)
def test_it_installs_on_a_clean_system(
    clean: Callable[[str], subprocess.CompletedProcess[str]], name: str, code: int, measured: set[str]
) -> None:
    """From the wheel all is measured; from the sdist, without a compiler, what needs none, and the rest is named."""
    installed = clean(
        "rm -rf /environment; python3 -m venv /environment\n"
        f"/environment/bin/pip install --quiet --no-index --find-links=/wheels /wheels/aes_exporter{name}"
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    bench = clean("exec /environment/bin/aes-exporter bench --benchmark.rounds=5 --format=json")
    answer: dict[str, Any] = json.loads(bench.stdout)

    assert bench.returncode == code, bench.stderr
    assert {result["engine"] for result in answer["results"]} == measured
    assert {failure["reason"] for failure in answer["failures"]} <= {"engine_unavailable"}


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_is_sound(path: Path) -> None:
    """Workflows follow GitHub's schema, pass zizmor's audit, start without permissions, and pin every action."""
    text = path.read_text()
    run(require("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", path)
    run(require("zizmor"), "--offline", "--no-progress", "--persona=pedantic", path)

    assert yaml.safe_load(text)["permissions"] == {}
    assert [
        line for line in re.findall(r"uses: (.*)", text) if not re.fullmatch(r"\S+@[0-9a-f]{40}  # v[\d.]+", line)
    ] == []


def test_the_workflow_builds_by_the_documented_command() -> None:
    """The release workflow runs deploy/release.sh and builds the Dockerfile, on machines of both architectures."""
    jobs = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]
    for job, command in (("distributions", "deploy/release.sh dist"), ("image", "docker build ")):
        assert jobs[job]["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
        assert command in "".join(step.get("run", "") for step in jobs[job]["steps"])


@pytest.mark.parametrize("script", sorted((ROOT / "deploy").rglob("*.sh")), ids=lambda path: path.name)
def test_a_script_has_no_smell(script: Path) -> None:
    """Shellcheck has nothing to say about the scripts that people run as root."""
    run(require("shellcheck"), script)
