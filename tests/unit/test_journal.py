"""The line that a run leaves in the log."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from aes_exporter import journal
from aes_exporter.model import Mask
from tests.snapshots import FRESH, RUN, RUN_PARTLY_FAILED

HEALTHY, PARTLY = FRESH.ended(RUN), FRESH.ended(RUN_PARTLY_FAILED)
STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


def test_one_line_says_everything(caplog: pytest.LogCaptureFixture) -> None:
    """The line of a run has its cost, and of each engine the headline throughputs and the speed-up."""
    caplog.set_level(logging.INFO)

    journal.report(FRESH, HEALTHY)

    assert [record.getMessage() for record in caplog.records].count("run ended") == 1
    assert fields(caplog.records[0]) == {
        "duration_seconds": 43.5,
        "cpu_seconds": 3.02,
        "rounds": 80,
        "libcrypto_hardware_bytes_per_second": 1209464068,
        "libcrypto_software_bytes_per_second": 328960366,
        "cryptography_hardware_bytes_per_second": 1178662988,
        "cryptography_software_bytes_per_second": 326638727,
        "libcrypto_speedup_over_software": 3.68,
        "cryptography_speedup_over_software": 3.61,
        "failures": "",
    }


def test_failures_stand_in_the_line_and_once_in_one_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    """Every run's line names the lanes that failed; their detail is told when it begins, and their recovery once."""
    caplog.set_level(logging.INFO)

    journal.report(FRESH, PARTLY)
    journal.report(PARTLY, PARTLY)
    journal.report(PARTLY, HEALTHY)

    failed = [f"{lane}:{failure.reason}" for lane, failure in RUN_PARTLY_FAILED.failures()]
    assert failed
    assert [vars(record)["failures"] for record in caplog.records if record.getMessage() == "run ended"] == [
        ",".join(failed),
        ",".join(failed),
        "",
    ]
    told = [record.getMessage() for record in caplog.records]
    assert (told.count("lane failed"), told.count("lane recovered")) == (len(failed), len(failed))


def test_a_state_is_told_when_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    """The state of the hardware is explained once when it changes: a warning with advice unless all is well."""
    caplog.set_level(logging.INFO)
    mask = Mask(place="/etc/environment", variable="OPENSSL_ia32cap", value="~0x200000200000000")
    masked = replace(HEALTHY, host=replace(HEALTHY.host, masks=(mask,)))

    journal.report(HEALTHY, HEALTHY)
    assert [record.getMessage() for record in caplog.records] == ["run ended"]

    journal.report(HEALTHY, masked)
    journal.report(masked, masked)
    journal.report(masked, HEALTHY)

    told = [record for record in caplog.records if "state" in vars(record) and vars(record)["engine"] == "libcrypto"]
    assert [(record.levelname, vars(record)["state"]) for record in told] == [
        ("WARNING", "masked"),
        ("INFO", "accelerated"),
    ]
    assert "/etc/environment" in told[0].getMessage()
    assert vars(told[0])["advice"].startswith("Remove it")
