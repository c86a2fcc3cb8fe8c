"""Fixtures for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import aes_exporter

PACKAGE = Path(aes_exporter.__file__).parent


@pytest.fixture
def copy_package() -> Callable[[Path], Path]:
    """Return a function that copies the package below a folder, to be altered there, and returns that folder."""

    def copy(folder: Path) -> Path:
        shutil.copytree(PACKAGE, folder / "aes_exporter", ignore=shutil.ignore_patterns("__pycache__"))
        return folder

    return copy
