"""What some tests need and not every machine has: where it is missing they skip, or fail if all of it is required."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

_VARIABLE = "AES_EXPORTER_REQUIRE_TOOLS"
REQUIRED = os.environ.get(_VARIABLE) == "1"


def forget_variable() -> None:
    """Take the variable out of the environment: the exporter warns of those with its prefix that it does not know."""
    os.environ.pop(_VARIABLE, None)


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
