"""The line that a run leaves in the log."""

from __future__ import annotations

import logging

import pytest

from aes_exporter import journal
from tests.snapshots import RUN, RUN_PARTLY_FAILED

STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


def test_one_line_says_everything(caplog: pytest.LogCaptureFixture) -> None:
    """The line of a run has its cost, and of each engine the headline throughputs and the speed-up."""
    caplog.set_level(logging.INFO)

    journal.report(None, RUN)

    assert [record.getMessage() for record in caplog.records] == ["run ended"]
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

    journal.report(None, RUN_PARTLY_FAILED)
    journal.report(RUN_PARTLY_FAILED, RUN_PARTLY_FAILED)
    journal.report(RUN_PARTLY_FAILED, RUN)

    failed = [f"{lane}:{failure.reason}" for lane, failure in RUN_PARTLY_FAILED.failures()]
    assert failed
    assert [vars(record)["failures"] for record in caplog.records if record.getMessage() == "run ended"] == [
        ",".join(failed),
        ",".join(failed),
        "",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "run ended",
        *["lane failed"] * len(failed),
        "run ended",
        "run ended",
        *["lane recovered"] * len(failed),
    ]
