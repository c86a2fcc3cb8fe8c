"""Fixtures for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import aes_exporter
import tests.tools  # noqa: F401 (before anything reads the environment)

PACKAGE = Path(aes_exporter.__file__).parent


@pytest.fixture
def copy_package() -> Callable[[Path], Path]:
    """Return a function that copies the package below a folder, to be altered there, and returns that folder."""

    def copy(folder: Path) -> Path:
        shutil.copytree(PACKAGE, folder / "aes_exporter", ignore=shutil.ignore_patterns("__pycache__"))
        return folder

    return copy


# A deadline for a single example would measure how busy the machine is.
settings.register_profile("aes-exporter", deadline=None)
settings.load_profile("aes-exporter")
