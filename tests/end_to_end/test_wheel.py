"""The package as users get it: built, installed into a fresh environment, started and scraped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from aes_exporter.capabilities import architecture
from tests.daemons import QUICK, daemon
from tests.processes import children
from tests.tools import require

ROOT = Path(__file__).parent.parent.parent
LIBRARY = "aes_exporter/worker/hotloop.so"

pytestmark = pytest.mark.timeout(300)


def build(folder: Path, **environment: str) -> Path:
    """Build the wheel in a copy of the source, as `pip install .` does, and return its path."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "aes_exporter"):
        subprocess.run(["cp", "-r", ROOT / name, source], check=True)
    (source / LIBRARY).unlink(missing_ok=True)
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    subprocess.run(command, check=True, env={**os.environ, **environment}, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> str:
    """Install a wheel and what it depends on into a fresh environment; return its Python."""
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    command = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    subprocess.run(command, check=True, capture_output=True)
    return python


def templates(names: list[str]) -> set[str]:
    return {Path(name).name for name in names if name.startswith("aes_exporter/templates/")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it is built where there is a compiler."""
    require("cc")
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the wheel installed."""
    return install(wheel, tmp_path_factory.mktemp("environment"))


def test_the_wheel_serves_every_python_of_its_platform(wheel: Path) -> None:
    """With a compiler the wheel carries the shared object and is tagged for any Python 3 on this platform."""
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert wheel.stem.split("-")[4].endswith(os.uname().machine)
    with zipfile.ZipFile(wheel) as archive:
        assert LIBRARY in archive.namelist()
        assert templates(archive.namelist()) == {path.name for path in (ROOT / "aes_exporter" / "templates").iterdir()}


def test_an_installed_daemon_is_scraped_and_ends(python: str, tmp_path: Path) -> None:
    """From an installed wheel a daemon starts, gives figures that parsers and promtool accept, and leaves nothing."""
    promtool = require("promtool")
    with daemon(tmp_path, *QUICK, python=python) as running:
        running.wait_until_ready()
        plain = running.metrics()
        landing_page = running.get("/")
        _, modern = running.get("/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
        check = subprocess.run([promtool, "check", "metrics"], input=plain.encode(), capture_output=True, check=False)
        code = running.end()

    assert landing_page[0] == 200
    assert "All figures: libcrypto" in landing_page[1]
    names = {family.name for family in text_format(plain)}
    assert {"aes_throughput_bytes_per_second", "aes_engine_info", "process_resident_memory_bytes"} <= names
    modern_families = openmetrics(modern)  # type: ignore[no-untyped-call]
    assert names >= {family.name for family in modern_families if family.type == "gauge"}
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")
    assert code == 0
    assert not children(running.process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_run_leaves_no_process(python: str, tmp_path: Path, number: signal.Signals) -> None:
    """A signal while workers are measuring ends them and the daemon within two seconds, with exit code 0."""
    with daemon(tmp_path, "--benchmark.slice=3ms", python=python) as running:
        running.wait_until(lambda: bool(running.url))
        running.wait_until(lambda: len(children(running.process.pid)) > 1)
        workers = children(running.process.pid)
        code = running.end(number)

    assert code == 0
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize("arguments", [("--version",), ("bench", "--help")])
def test_the_console_script_is_installed(python: str, arguments: tuple[str, ...]) -> None:
    """The wheel installs a command named aes-exporter."""
    script = Path(python).with_name("aes-exporter")

    output = subprocess.run([script, *arguments], capture_output=True, check=True, text=True).stdout

    assert output.startswith(("aes-exporter 0.", "Usage: aes-exporter bench"))


def test_without_a_compiler_it_installs_and_says_what_is_missing(tmp_path: Path) -> None:
    """Without a compiler the wheel is pure, the daemon runs, and log and metrics name what is missing."""
    wheel = build(tmp_path, CC="/nonexistent")
    with zipfile.ZipFile(wheel) as archive:
        assert LIBRARY not in archive.namelist()
    assert wheel.name.endswith("-py3-none-any.whl")

    python = install(wheel, tmp_path / "environment")
    with daemon(tmp_path, *QUICK, python=python) as running:
        running.wait_until_ready()
        metrics, log = running.metrics(), running.log.read_text()

    failed = 'aes_exporter_failures_total{engine="libcrypto",path="hardware",reason="engine_unavailable"} 1.0'
    assert failed in metrics
    assert "reinstall aes-exporter where a C compiler is installed" in log
    assert architecture() in metrics
