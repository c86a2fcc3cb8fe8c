"""The units and their installer on booted Debian systems, with the systemd and the Python of each."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.deployment import debian, machines
from tests.deployment.containers import get, wait_for
from tests.deployment.debian import ROOT, Suite
from tests.deployment.machines import Machine
from tests.processes import children
from tests.tools import require

pytestmark = pytest.mark.timeout(600)

DAEMON = "aes-exporter.service"
TEXTFILE = "aes-exporter-textfile.service"
INSTALLER = "/srv/systemd/install.sh"
SETTINGS = "/etc/default/aes-exporter"
QUICK = "AES_EXPORTER_BENCHMARK_ROUNDS=5\nAES_EXPORTER_BENCHMARK_SLICE=100us\nAES_EXPORTER_BENCHMARK_PAUSE=0\n"


@pytest.fixture(scope="module")
def machine(
    suite: Suite,
    archive: Callable[[Suite], Path],
    wheelhouse: Callable[[Suite], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    """A system on which nothing is installed yet; its pip finds our release as it would in an index."""
    root = debian.unpack(archive(suite), tmp_path_factory.mktemp("machine") / suite.name)
    shutil.copytree(wheelhouse(suite), root / "wheels")
    shutil.copytree(ROOT / "deploy" / "systemd", root / "srv" / "systemd")
    (root / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    try:
        with machines.booted(root) as running:
            yield running
    finally:
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def installed(machine: Machine, port: int) -> Machine:
    """A system on which the installer ran, with settings of ours: another port, quick runs, a niceness."""
    machine(INSTALLER, "aes-exporter")
    settings = machine.root / SETTINGS[1:]
    address = f"AES_EXPORTER_WEB_LISTEN_ADDRESS=127.0.0.1:{port}\nAES_EXPORTER_BENCHMARK_NICE=5\n"
    settings.write_text(settings.read_text() + QUICK + address)
    machine("systemctl", "restart", DAEMON)
    return machine


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--no-such",), "no such option: --no-such"),
        (("a", "b"), "one package at most, got: a b"),
        (("--textfile", "relative"), "--textfile needs an absolute path, got: relative"),
        (("--textfile", "/nonexistent"), "/nonexistent is no folder"),
        (("aes-exporter",), "/opt/aes-exporter is there and is not an aes-exporter; move it away"),
        (("--uninstall",), "/opt/aes-exporter is there and is not an aes-exporter; move it away"),
    ],
    ids=str,
)
def test_the_installer_refuses(machine: Machine, arguments: tuple[str, ...], words: str) -> None:
    """What it cannot do it says in one line, before anything is changed."""
    machine("mkdir", "-p", "/opt/aes-exporter")
    try:
        assert machine.attempt(INSTALLER, *arguments) == (1, f"install.sh: {words}\n")
    finally:
        machine("rmdir", "/opt/aes-exporter")


def scrape(machine: Machine, port: int) -> str:
    """Return the metrics once the first run has ended, read from outside."""
    return wait_for(
        lambda: get(f"http://127.0.0.1:{port}/metrics"),
        lambda text: "aes_exporter_rounds " in text,
        lambda: machine.journal(DAEMON),
        60,
    )


def series(metrics: str) -> set[tuple[str, ...]]:
    """Return what there is, whatever the values: names and labels."""
    return {
        (sample.name, *(f"{label}={value}" for label, value in sorted(sample.labels.items())))
        for family in parse(metrics)
        for sample in family.samples
    }


def test_the_service_is_active_and_scraped(installed: Machine, port: int) -> None:
    """Installed by one command, it is enabled, active, and measures both engines on both paths."""
    metrics = scrape(installed, port)

    assert installed.show(DAEMON, "ActiveState") == "active"
    assert installed("systemctl", "is-enabled", DAEMON).strip() == "enabled"
    assert re.findall(r"aes_exporter_path_up\{.*\} (\S+)", metrics) == ["1.0"] * 4


def test_systemd_finds_nothing_to_say(installed: Machine) -> None:
    """`systemd-analyze verify` is silent about all three units, in the oldest and the newest systemd we know."""
    units = [f"/etc/systemd/system/{name}" for name in (DAEMON, TEXTFILE, "aes-exporter-textfile.timer")]
    for unit in units[1:]:
        shutil.copy(ROOT / "deploy" / "systemd" / Path(unit).name, installed.root / unit[1:])

    assert installed.attempt("systemd-analyze", "verify", *units) == (0, "")


@pytest.mark.parametrize("unit", [DAEMON, TEXTFILE])
def test_the_exposure_is_low(installed: Machine, unit: str) -> None:
    """`systemd-analyze security` rates the unit at 1.2 or better."""
    path = f"/srv/systemd/{unit}"
    code, text = installed.attempt(
        "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=12", path
    )

    assert code == 0, text


def test_hardening_takes_nothing_from_the_measurement(installed: Machine, port: int) -> None:
    """An unhardened start as root publishes the same series: the same engines, flags, drivers, and pinning."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        other = int(probe.getsockname()[1])
    settings = (*QUICK.split(), f"AES_EXPORTER_WEB_LISTEN_ADDRESS=127.0.0.1:{other}", "AES_EXPORTER_BENCHMARK_NICE=5")
    command = installed.command("env", *settings, "/opt/aes-exporter/bin/aes-exporter")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as plain:
        try:
            deadline = time.monotonic() + 30  # each asks for the hypervisor some time after its first run
            hardened = unhardened = ""
            while not hardened or series(hardened) != series(unhardened):
                assert time.monotonic() < deadline, series(hardened) ^ series(unhardened)
                hardened, unhardened = scrape(installed, port), scrape(installed, other)
        finally:
            for child in children(plain.pid):  # nsenter passes no signal on
                os.kill(child, signal.SIGTERM)

    assert ("aes_exporter_run_cpu",) in series(hardened)


def test_nothing_is_refused(installed: Machine, port: int) -> None:
    """Workers could pin themselves and set their niceness, and the compiled loop was loaded: no warning is logged."""
    scrape(installed, port)
    journal = installed.journal(DAEMON)

    assert "run ended" in journal
    assert "refused" not in journal
    assert "not pinned" not in journal
    assert "level=warning" not in journal


def test_it_comes_back_after_a_kill(installed: Machine, port: int) -> None:
    """Killed, the service is up again by itself."""
    before = installed.show(DAEMON, "MainPID")
    installed("kill", "-KILL", before)
    wait_for(lambda: installed.show(DAEMON, "NRestarts"), lambda restarts: restarts != "0", lambda: "", 60)
    scrape(installed, port)

    assert installed.show(DAEMON, "MainPID") != before


def test_the_watchdog_restarts_a_stopped_process(installed: Machine, port: int) -> None:
    """A process that is stopped, so that its event loop no longer turns, is ended and replaced."""
    drop_in = f"/etc/systemd/system/{DAEMON}.d/quick.conf"
    installed("mkdir", "-p", str(Path(drop_in).parent))
    (installed.root / drop_in[1:]).write_text("[Service]\nWatchdogSec=2s\nTimeoutAbortSec=2s\n")
    installed("systemctl", "daemon-reload")
    installed("systemctl", "restart", DAEMON)
    scrape(installed, port)
    time.sleep(5)  # more than two periods: a live process is left alone
    assert installed.show(DAEMON, "NRestarts") == "0"

    installed("kill", "-STOP", installed.show(DAEMON, "MainPID"))
    wait_for(lambda: installed.show(DAEMON, "NRestarts"), lambda restarts: restarts == "1", lambda: "", 60)
    scrape(installed, port)

    assert "watchdog" in installed.journal(DAEMON).lower()


def test_it_stops_within_two_seconds(installed: Machine) -> None:
    """`systemctl stop` takes less than two seconds, during a run too, leaves no process, and is no failure."""
    installed("systemctl", "restart", DAEMON)
    began = time.monotonic()
    installed("systemctl", "stop", DAEMON)
    seconds = time.monotonic() - began

    assert installed.show(DAEMON, "Result") == "success"
    assert installed.attempt("pgrep", "-f", "aes_exporter|aes-exporter")[0] == 1
    assert seconds < 2


def test_a_wrong_setting_is_not_tried_again(installed: Machine) -> None:
    """Exit code 2 leaves the unit failed, with the reason in the journal, instead of restarting for ever."""
    settings = installed.root / SETTINGS[1:]
    good = settings.read_text()
    settings.write_text(good + "AES_EXPORTER_LOG_LEVEL=loud\n")
    try:
        code, _ = installed.attempt("systemctl", "restart", DAEMON)
        state = installed.show(DAEMON, "ActiveState"), installed.show(DAEMON, "ExecMainStatus")
        journal = installed.journal(DAEMON)
    finally:
        settings.write_text(good)

    assert code != 0
    assert state == ("failed", "2")
    assert "AES_EXPORTER_LOG_LEVEL: expected debug" in journal


def test_installing_again_keeps_the_settings(installed: Machine, port: int) -> None:
    """The installer may be run again: it changes nothing that you changed, and the service runs afterwards."""
    settings = (installed.root / SETTINGS[1:]).read_text()
    said = installed(INSTALLER, "aes-exporter")
    scrape(installed, port)

    assert (installed.root / SETTINGS[1:]).read_text() == settings
    assert f"keeping {SETTINGS}" in said
    assert said.rstrip().endswith("aes-exporter.service is active")


@pytest.mark.parametrize("owner", ["root", "nobody"])
def test_the_textfile_for_node_exporter(installed: Machine, owner: str) -> None:
    """With --textfile there is a timer and a file that promtool accepts, whoever owns the folder."""
    folder = f"/var/lib/textfile-{owner}"
    installed("install", "-d", "-o", owner, folder)
    installed(INSTALLER, "--textfile", folder, "aes-exporter")
    written = installed.root / folder[1:] / "aes.prom"
    check = subprocess.run((require("promtool"), "check", "metrics"), input=written.read_bytes(), check=False)

    assert check.returncode == 0
    assert oct(written.stat().st_mode & 0o777) == "0o644"
    assert installed.show(TEXTFILE, "Result") == "success"
    assert installed("systemctl", "is-active", "aes-exporter-textfile.timer").strip() == "active"
    assert "path_up" in written.read_text()
    assert "refused" not in installed.journal(TEXTFILE)


def test_uninstalling_leaves_the_settings_only(installed: Machine) -> None:
    """--uninstall stops and removes all it installed, twice without complaint; --purge takes the settings, too."""
    installed(INSTALLER, "--uninstall")
    installed(INSTALLER, "--uninstall")

    assert not (installed.root / "opt/aes-exporter").exists()
    assert list((installed.root / "etc/systemd/system").rglob("aes-exporter*")) == []
    assert installed.attempt("systemctl", "is-active", DAEMON)[1].strip() == "inactive"
    assert (installed.root / SETTINGS[1:]).exists()

    installed(INSTALLER, "--purge")

    assert not (installed.root / SETTINGS[1:]).exists()


def test_the_installer_refuses_other_hosts() -> None:
    """Where systemd does not run, or without root, it ends at once and says so."""
    if Path("/run/systemd/system").exists():
        pytest.skip("systemd runs here, and this test does not install anything on its host")
    finished = subprocess.run((ROOT / "deploy/systemd/install.sh",), capture_output=True, text=True, check=False)

    assert finished.returncode == 1
    assert re.fullmatch("install.sh: (systemd does not run on this host|run it as root)\n", finished.stderr)
