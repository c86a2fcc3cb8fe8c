"""The daemon with a web config, as users meet it: curl, a real Prometheus, signals, and clients that mean harm."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme

from tests.certificates import ALICE, MUTUAL, PAIR, USERS, write, write_authority, write_pair
from tests.daemons import QUICK, Daemon, daemon
from tests.tools import require

AUTHORITY = trustme.CA()
CLIENTS = trustme.CA()
RIGHT = "alice:wonderland"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with everything that server and clients need."""
    write_pair(tmp_path, AUTHORITY)
    write_authority(tmp_path / "ca.crt", AUTHORITY)
    write_authority(tmp_path / "clients.crt", CLIENTS)
    write_pair(tmp_path, CLIENTS, "client.test", stem="client")
    write_pair(tmp_path, trustme.CA(), "client.test", stem="stranger")
    return tmp_path


@contextmanager
def guarded(folder: Path, text: str, *flags: str) -> Iterator[Daemon]:
    """Start a daemon with a web config."""
    with daemon(folder, *QUICK, f"--web.config.file={write(folder, text)}", *flags) as running:
        running.wait_until(lambda: "run ended" in running.log.read_text())
        yield running


class Client:
    """Asks a daemon over TLS, each time over a new connection."""

    def __init__(self, running: Daemon, folder: Path, *, certificate: str = "") -> None:
        self.address = running.url.removeprefix("http://")
        self.context = ssl.create_default_context(cafile=folder / "ca.crt")
        if certificate:
            self.context.load_cert_chain(folder / f"{certificate}.crt", folder / f"{certificate}.key")

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, context=self.context, timeout=20)

    def ask(self, path: str = "/metrics", credentials: str = RIGHT) -> tuple[int, str]:
        connection = self.connection()
        try:
            return ask(connection, path, credentials)
        finally:
            connection.close()


def ask(connection: http.client.HTTPConnection, path: str, credentials: str = RIGHT) -> tuple[int, str]:
    """Return status and body of a request."""
    headers = {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"} if credentials else {}
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def curl(folder: Path, running: Daemon, *arguments: str, path: str = "/metrics") -> tuple[int, str]:
    """Return curl's exit code and the status it got, "000" if none."""
    url = running.url.replace("http", "https", 1) + path
    command = [require("curl"), "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", *arguments, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, cwd=folder)
    return done.returncode, done.stdout


TRUST = ("--cacert", "ca.crt")


class TestCurl:
    def test_passwords(self, folder: Path) -> None:
        """curl gets in with the right authority and password, and with nothing else."""
        with guarded(folder, PAIR + USERS) as running:
            assert curl(folder, running, *TRUST, "--user", RIGHT) == (0, "200")
            assert curl(folder, running, *TRUST, "--user", RIGHT, "--http2") == (0, "200")
            assert curl(folder, running, *TRUST, "--user", RIGHT, "--head") == (0, "200")
            assert curl(folder, running, *TRUST, "--user", "alice:wrong") == (0, "401")
            assert curl(folder, running, *TRUST, "--user", "bob:wonderland") == (0, "401")
            assert curl(folder, running, *TRUST) == (0, "401")
            assert curl(folder, running, *TRUST, path="/-/healthy") == (0, "401")
            assert curl(folder, running, "--user", RIGHT) == (60, "000")  # it does not trust us

    def test_client_certificates(self, folder: Path) -> None:
        """With mutual TLS curl gets in with a certificate of the right authority, not with another, not without one."""
        with guarded(folder, MUTUAL) as running:
            known = ("--cert", "client.crt", "--key", "client.key")
            stranger = ("--cert", "stranger.crt", "--key", "stranger.key")
            assert curl(folder, running, *TRUST, *known) == (0, "200")
            assert curl(folder, running, *TRUST, *stranger)[1] == "000"
            assert curl(folder, running, *TRUST)[1] == "000"

    def test_open_health(self, folder: Path) -> None:
        """With --web.open-health probes need no password; everything else still does."""
        with guarded(folder, PAIR + USERS, "--web.open-health") as running:
            statuses = {path: curl(folder, running, *TRUST, path=path)[1] for path in ("/-/healthy", "/-/ready", "/")}
            assert statuses == {"/-/healthy": "200", "/-/ready": "200", "/": "401"}
            assert curl(folder, running, *TRUST)[1] == "401"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Run a Prometheus that scrapes these jobs every second, and yield its address."""
    program, port = require("prometheus"), free_port()
    scrapes = [{"job_name": name, "scrape_interval": "1s", "scrape_timeout": "1s", **job} for name, job in jobs.items()]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": scrapes}))  # JSON is YAML
    command = (
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def targets(address: str, count: int) -> dict[str, tuple[str, str]]:
    """Wait until all targets were scraped, and return each job's health and latest error."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError), urllib.request.urlopen(f"{address}/api/v1/targets", timeout=5) as reply:
            found = json.load(reply)["data"]["activeTargets"]
            if len(found) == count and all(each["health"] != "unknown" for each in found):
                return {each["labels"]["job"]: (each["health"], each["lastError"]) for each in found}
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_prometheus(folder: Path) -> None:
    """A real Prometheus scrapes with the right tls_config and basic_auth; wrong or missing, the target is down."""
    (folder / "mutual").mkdir()
    for file in folder.glob("*.*"):
        (folder / "mutual" / file.name).write_bytes(file.read_bytes())
    trust = {"ca_file": f"{folder}/ca.crt"}
    known, stranger = (
        {"cert_file": f"{folder}/{name}.crt", "key_file": f"{folder}/{name}.key"} for name in ("client", "stranger")
    )
    alice = {"username": "alice", "password": "wonderland"}
    with guarded(folder, PAIR + USERS) as by_password, guarded(folder / "mutual", MUTUAL) as by_certificate:

        def job(running: Daemon, scheme: str = "https", **how: object) -> dict[str, object]:
            return {"scheme": scheme, "static_configs": [{"targets": [running.url.removeprefix("http://")]}], **how}

        jobs = {
            "right password": job(by_password, tls_config=trust, basic_auth=alice),
            "wrong password": job(by_password, tls_config=trust, basic_auth={**alice, "password": "x"}),
            "unknown user": job(by_password, tls_config=trust, basic_auth={**alice, "username": "bob"}),
            "no password": job(by_password, tls_config=trust),
            "no trust": job(by_password, basic_auth=alice),
            "no tls": job(by_password, "http", basic_auth=alice),
            "right certificate": job(by_certificate, tls_config={**trust, **known}),
            "wrong certificate": job(by_certificate, tls_config={**trust, **stranger}),
            "no certificate": job(by_certificate, tls_config=trust),
        }
        with prometheus(folder, jobs) as address:
            found = targets(address, len(jobs))
        logs = by_password.log.read_text() + by_certificate.log.read_text()

    assert {name for name, (health, _) in found.items() if health == "up"} == {"right password", "right certificate"}
    unauthorized = ("down", "server returned HTTP status 401 Unauthorized")
    assert [found[name] for name in ("wrong password", "unknown user", "no password")] == [unauthorized] * 3
    assert "unknown authority" in found["no trust"][1]
    assert "level=error" not in logs


class TestReload:
    def test_users(self, folder: Path) -> None:
        """A user who was taken out is refused at the next request, over an open connection too, without a signal."""
        with guarded(folder, PAIR + USERS + f"  bob: {ALICE}\n") as running:
            client = Client(running, folder)
            connection = client.connection()
            assert ask(connection, "/metrics")[0] == 200
            write(folder, PAIR + USERS.replace("alice", "bob"))
            assert ask(connection, "/metrics")[0] == 401
            assert ask(connection, "/metrics", "bob:wonderland")[0] == 200
            connection.close()

    def test_a_broken_file(self, folder: Path) -> None:
        """A broken file is in log and metric, the old one stays in force, and the daemon goes on."""
        with guarded(folder, PAIR + USERS) as running:
            client = Client(running, folder)
            name = "aes_exporter_web_config_last_reload_success"
            before = client.ask()[1]
            assert f"\n{name}ful 1.0\n" in before
            write(folder, PAIR + "basic_auth_users:\n  alice: plain-text-password\n")
            broken = client.ask()[1]
            assert f"\n{name}ful 0.0\n" in broken
            timestamp = re.compile(rf"^{name}_timestamp_seconds (\S+)$", re.MULTILINE)
            assert timestamp.findall(broken) == timestamp.findall(before)
            write(folder, PAIR + USERS + "# repaired\n")
            repaired = client.ask()[1]
            assert f"\n{name}ful 1.0\n" in repaired
            assert timestamp.findall(repaired) > timestamp.findall(before)
            log = running.log.read_text()
            assert (
                f'reason="{folder}/web.yml:5: basic_auth_users: the password of this user is not a bcrypt hash' in log
            )
            assert "plain-text-password" not in log

    def test_sighup(self, folder: Path) -> None:
        """SIGHUP reads the file without a request, and lets it ask for less than before; the daemon stays the same."""
        with guarded(folder, PAIR + USERS) as running:
            client = Client(running, folder)
            write(folder, "# open\n")
            assert client.ask(credentials="")[0] == 401
            running.process.send_signal(signal.SIGHUP)
            running.wait_until(lambda: "protections=none" in running.log.read_text())
            assert running.get("/metrics")[0] == 200
            write(folder, PAIR)
            assert client.ask(credentials="")[0] == 200
            assert running.end() == 0

    def test_sighup_without_a_web_config(self, folder: Path) -> None:
        """Without a web config SIGHUP changes nothing and is no end; there are no metrics of one either."""
        with daemon(folder, *QUICK) as running:
            running.wait_until_ready()
            running.process.send_signal(signal.SIGHUP)
            running.wait_until(lambda: "nothing to reload on SIGHUP" in running.log.read_text())
            assert "web_config" not in running.metrics()

    @pytest.mark.parametrize("keep", [True, False], ids=["kept connections", "new connections"])
    def test_rotation_under_load(self, folder: Path, keep: bool) -> None:
        """While certificates and hashes are replaced time and again, not one of many scrapes is lost."""
        with guarded(folder, MUTUAL + USERS) as running, ExitStack() as stack:
            client = Client(running, folder, certificate="client")
            rotating = threading.Event()
            statuses: list[int] = []

            def scrape_on() -> None:
                connection = client.connection()
                while not rotating.is_set() or not statuses:
                    statuses.append(ask(connection, "/metrics")[0])
                    if not keep:
                        connection.close()
                connection.close()

            threads = [threading.Thread(target=scrape_on) for _ in range(4)]
            stack.callback(rotating.set)
            for thread in threads:
                thread.start()
            certificates = set()
            host, port = client.address.split(":")
            for number in range(20):
                write_pair(folder, AUTHORITY)
                write_authority(folder / "clients.crt", CLIENTS)
                write(folder, f"{MUTUAL}{USERS}  user-{number}: {ALICE}\n")
                if number % 2:
                    running.process.send_signal(signal.SIGHUP)
                with client.context.wrap_socket(
                    socket.create_connection((host, int(port)), 10), server_hostname="localhost"
                ) as sock:
                    certificates.add(sock.getpeercert(binary_form=True))
            rotating.set()
            for thread in threads:
                thread.join(30)

            assert len(certificates) == 20
            assert set(statuses) == {200}
            assert len(statuses) >= 20


def hello() -> bytes:
    """Return the first message of a good handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_stalled_handshakes(folder: Path) -> None:
    """While 200 handshakes stall at a time, good scrapes are answered in under 100 ms, and memory stays bounded."""
    with guarded(folder, PAIR + USERS) as running, ExitStack() as held:
        client = Client(running, folder)
        host, port = client.address.split(":")
        client.ask()
        stalls = (b"", hello()[:100], hello())
        for number in range(200):
            sock = held.enter_context(socket.create_connection((host, int(port)), 10))
            sock.sendall(stalls[number % 3])
        seconds = []
        for _ in range(40):
            began = time.monotonic()
            assert client.ask()[0] == 200
            seconds.append(time.monotonic() - began)
        assert statistics.median(seconds) < 0.1
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{running.process.pid}/status").read_text())
        assert resident
        assert int(resident[1]) < 80_000


def test_wrong_passwords_do_not_hold_up_scrapes(folder: Path) -> None:
    """While many clients guess passwords, each of which takes its time, those who scrape are answered at once."""
    hashed = bcrypt.hashpw(b"wonderland", bcrypt.gensalt(11)).decode()
    with guarded(folder, PAIR + f"basic_auth_users:\n  alice: {hashed}\n") as running:
        client = Client(running, folder)
        assert client.ask()[0] == 200
        scraping = threading.Event()
        statuses: list[int] = []

        def guess(number: int) -> None:
            guesser = Client(running, folder)
            with suppress(OSError, http.client.HTTPException):
                for attempt in range(100):
                    if scraping.is_set():
                        return
                    statuses.append(guesser.ask("/", f"alice:guess {number} {attempt}")[0])

        threads = [threading.Thread(target=guess, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        seconds = []
        for _ in range(20):
            began = time.monotonic()
            assert client.ask("/-/healthy")[0] == 200
            seconds.append(time.monotonic() - began)
        scraping.set()
        for thread in threads:
            thread.join(20)
        assert statistics.median(seconds) < 0.1
        assert set(statuses) <= {401, 503}
        assert statuses


def test_timing_tells_no_names(folder: Path) -> None:
    """A wrong password takes as long for a name that exists as for one that does not, by the median of many pairs."""
    hashed = bcrypt.hashpw(b"wonderland", bcrypt.gensalt(8)).decode()
    with guarded(folder, f"basic_auth_users:\n  alice: {hashed}\n") as running:
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)

        def seconds(name: str, number: int) -> float:
            began = time.perf_counter()
            assert ask(connection, "/metrics", f"{name}:guess {number}")[0] == 401
            return time.perf_counter() - began

        ratios = []
        for number in range(30):
            names = ("alice", "nobody")[:: 1 if number % 2 else -1]
            took = {name: seconds(name, number) for name in names}
            ratios.append(took["alice"] / took["nobody"])
        connection.close()

        assert 0.8 < statistics.median(ratios) < 1.25


def test_nothing_secret_gets_out(folder: Path) -> None:
    """Neither key, hash, password nor name appears in log, pages or errors, at any level, whatever happens."""
    key = (folder / "server.key").read_text()
    inline = "".join(f"    {line}\n" for line in key.splitlines())
    text = PAIR.replace("key_file: server.key", f"key: |\n{inline.rstrip()}") + USERS
    with guarded(folder, text, "--log.level=debug") as running:
        client = Client(running, folder)
        pages = [client.ask(path, who)[1] for path in ("/", "/metrics", "/x") for who in (RIGHT, "alice:w0nder", "")]
        write(folder, text.replace(ALICE, ALICE[:-1]))
        client.ask()
        write(folder, text.replace("BEGIN", "BEGINN"))
        client.ask()
        running.process.send_signal(signal.SIGHUP)
        running.wait_until(lambda: running.log.read_text().count("web config refused") >= 3)
        assert running.end() == 0
        shown = running.log.read_text() + "".join(pages)

    secrets = [ALICE[7:], "wonderland", "w0nder", "alice", *(line for line in key.splitlines() if "-----" not in line)]
    assert [secret for secret in secrets if secret in shown] == []


class TestConfigCheck:
    def check(self, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "aes_exporter", "--config.check", "--web.config.file=web.yml")
        write(folder, text)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=30, cwd=folder, env=dict(os.environ)
        )

    def test_good(self, folder: Path) -> None:
        """--config.check accepts a good web config without a word on it."""
        done = self.check(folder, MUTUAL + USERS)

        assert (done.returncode, done.stdout, done.stderr) == (0, "The configuration is valid.\n", "")

    def test_bad(self, folder: Path) -> None:
        """A bad one is one line that names flag, file, line and key, repeats no secret, and exit code 2."""
        done = self.check(folder, PAIR + f"basic_auth_users:\n  alice: {ALICE}x\n")

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "aes-exporter: --web.config.file: web.yml:5: basic_auth_users: "
            "the password of this user is not a bcrypt hash, such as htpasswd -nBC 10 makes\n"
        )
