"""What some tests need and not every machine has: where it is missing they skip, or fail if all of it is required."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

# Taken out of the environment, since the exporter warns of variables with its prefix that it does not know.
REQUIRED = os.environ.pop("AES_EXPORTER_REQUIRE_TOOLS", "") == "1"


def require(program: str) -> str:
    """Return the path of a program, also of one installed beside this Python.

    Without it the test is skipped, or fails where AES_EXPORTER_REQUIRE_TOOLS was 1.
    """
    here = str(Path(sys.executable).parent)
    path = shutil.which(program, path=os.pathsep.join((here, os.environ.get("PATH", os.defpath))))
    if path is None:
        unavailable(f"{program} is not installed")
    return path


def require_root() -> None:
    """Go on only as root; otherwise see `unavailable`."""
    if os.geteuid() != 0:
        unavailable("this needs root")


def unavailable(reason: str) -> NoReturn:
    """Skip the test for a reason, or fail it where AES_EXPORTER_REQUIRE_TOOLS was 1."""
    if REQUIRED:
        pytest.fail(f"{reason}, and AES_EXPORTER_REQUIRE_TOOLS=1 asks for it")
    pytest.skip(reason)
