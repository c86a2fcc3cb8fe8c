"""Programs and privileges that some tests need and not every machine has."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest


def require(program: str) -> str:
    """Return the path of a program, also of one installed beside this Python; without it see `missing`."""
    here = str(Path(sys.executable).parent)
    path = shutil.which(program, path=os.pathsep.join((here, os.environ.get("PATH", os.defpath))))
    if path is None:
        missing(f"{program} is not installed")
    return path


def require_root() -> None:
    """Go on only as root; otherwise see `missing`."""
    if os.geteuid() != 0:
        missing("this needs root")


def missing(what: str) -> NoReturn:
    """Skip the test for want of something, or fail it where AES_EXPORTER_REQUIRE_TOOLS is 1."""
    if os.environ.get("AES_EXPORTER_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{what}, and AES_EXPORTER_REQUIRE_TOOLS=1 asks for it")
    pytest.skip(what)
