"""The config in force: when files are read again, what counts then, and what log and metric say."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from aes_exporter.model import WebConfigReading
from aes_exporter.web.current import CurrentWebConfig
from aes_exporter.web.document import WebConfigError
from tests.certificates import ALICE, MUTUAL, PAIR, USERS, write, write_authority, write_pair

AUTHORITY = trustme.CA()


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_up(tmp_path: Path, clock: Clock) -> Callable[[str], CurrentWebConfig]:
    """Return a function that writes a web config and returns what keeps it."""
    write_pair(tmp_path, AUTHORITY)
    write_authority(tmp_path / "clients.crt", AUTHORITY)
    return lambda text: CurrentWebConfig(write(tmp_path, text), clock)


def test_a_change_counts_at_the_next_look(open_up: Callable[[str], CurrentWebConfig], tmp_path: Path) -> None:
    """A changed file is read when somebody asks, however it was written and whatever its date; another is not."""
    current = open_up(USERS)
    first = current()
    assert current() is first

    write(tmp_path, USERS.replace("alice", "carol"))
    os.utime(tmp_path / "web.yml", (0, 0))
    assert [*current().users] == [b"carol"]

    with (tmp_path / "web.yml").open("r+") as file:
        file.write(USERS.replace("alice", "david"))  # as long as before
    os.utime(tmp_path / "web.yml", (0, 0))
    assert [*current().users] == [b"david"]


@pytest.mark.parametrize("file", ["server", "clients.crt"])
def test_a_named_file_counts_as_well(open_up: Callable[[str], CurrentWebConfig], tmp_path: Path, file: str) -> None:
    """A new certificate or client authority is a change, though the web config itself is as it was."""
    current = open_up(MUTUAL)
    first = current.tls()
    assert first is not None
    if file == "server":
        write_pair(tmp_path, AUTHORITY)
    else:
        write_authority(tmp_path / file, trustme.CA())
    second = current.tls()

    assert second is not None
    assert second.context is not first.context
    assert (second.clients == first.clients) is (file == "server")


def test_a_broken_file_changes_nothing(
    open_up: Callable[[str], CurrentWebConfig], tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read leaves the old config in force; log and metric say so, once, and what repairs it counts."""
    current = open_up(PAIR + USERS)
    first = current()
    clock.now = 2000.0
    for broken in ("basic_auth_users: [", "", None):
        (tmp_path / "web.yml").unlink() if broken is None else write(tmp_path, broken)
        for _ in range(3):
            assert current() is first
        assert current.reading == WebConfigReading(successful=False, last_success=1000.0)
    assert [(record.levelno, record.__dict__["reason"]) for record in caplog.records] == [
        (
            logging.ERROR,
            f"{tmp_path}/web.yml:1: not a YAML document: expected the node content, but found '<stream end>'",
        ),
        (logging.ERROR, f"{tmp_path}/web.yml: no longer asks for TLS, passwords; SIGHUP if that is meant"),
        (logging.ERROR, f"{tmp_path}/web.yml: No such file or directory"),
    ]
    caplog.clear()
    caplog.set_level(logging.INFO)
    write(tmp_path, USERS + PAIR)

    assert current() is not first
    assert current.reading == WebConfigReading(successful=True, last_success=2000.0)
    assert [(record.getMessage(), record.__dict__["protections"]) for record in caplog.records] == [
        ("web config read", "TLS, passwords")
    ]


def test_half_of_a_pair(open_up: Callable[[str], CurrentWebConfig], tmp_path: Path) -> None:
    """Between a new certificate and its key the old pair stays in force; with both there, the new one is."""
    current = open_up(PAIR)
    first = current.tls()
    old_key = (tmp_path / "server.key").read_bytes()
    write_pair(tmp_path, AUTHORITY)
    new_key = (tmp_path / "server.key").read_bytes()

    (tmp_path / "server.key").write_bytes(old_key)
    assert current.tls() is first
    assert not current.reading.successful
    (tmp_path / "server.key").write_bytes(new_key)
    assert current.tls() is not first
    assert current.reading.successful


@pytest.mark.parametrize(
    "change",
    [
        (PAIR, "", "TLS"),
        (PAIR, USERS, "TLS"),
        (USERS, "", "passwords"),
        (PAIR + USERS, PAIR, "passwords"),
        (MUTUAL, PAIR, "client certificates"),
        (MUTUAL + USERS, "", "TLS, client certificates, passwords"),
        (MUTUAL, MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"), "client certificates"),
    ],
)
def test_protection_ends_on_request_only(
    open_up: Callable[[str], CurrentWebConfig],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: tuple[str, str, str],
) -> None:
    """A file that asks for less, as one half-written does, is not believed until somebody asks to have it read."""
    before, after, lost = change
    current = open_up(before)
    first = current()
    write(tmp_path, after)
    assert current() is first
    assert caplog.records[0].__dict__["reason"].endswith(f"no longer asks for {lost}; SIGHUP if that is meant")

    current.reload()
    assert not current().protections() >= first.protections()
    assert current.reading.successful


def test_reload_without_a_change(open_up: Callable[[str], CurrentWebConfig], clock: Clock) -> None:
    """Who asks for it has the files read again, changed or not, and sees so by the timestamp."""
    current = open_up(USERS)
    clock.now = 3000.0
    current.reload()

    assert current.reading == WebConfigReading(successful=True, last_success=3000.0)
    assert current().users == {b"alice": ALICE.encode()}


def test_no_first_config(open_up: Callable[[str], CurrentWebConfig]) -> None:
    """Without a good config to begin with there is none in force, and so no daemon."""
    with pytest.raises(WebConfigError):
        open_up("nonsense")


def test_only_files_are_read(tmp_path: Path) -> None:
    """What cannot be read twice, such as a pipe, is refused instead of waited for."""
    os.mkfifo(tmp_path / "web.yml")
    with pytest.raises(WebConfigError) as caught:
        CurrentWebConfig(tmp_path / "web.yml")
    assert str(caught.value) == f"{tmp_path}/web.yml: Invalid argument"
