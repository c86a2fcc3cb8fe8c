"""Programs that some tests need and not every machine has."""

from __future__ import annotations

import os
import shutil

import pytest


def require(program: str) -> str:
    """Return the path of a program; without it skip the test, or fail it where AES_EXPORTER_REQUIRE_TOOLS is 1."""
    path = shutil.which(program)
    if path is not None:
        return path
    if os.environ.get("AES_EXPORTER_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{program} is not installed, and AES_EXPORTER_REQUIRE_TOOLS=1 asks for it")
    pytest.skip(f"{program} is not installed")
