"""Fixtures for all tests, and how they are divided among processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import aes_exporter
from tests import tools

PACKAGE = Path(aes_exporter.__file__).parent

TOGETHER = ("deployment", "faults")
"""Folders whose tests go to one process: they share what is costly to build, or act as one user."""


def pytest_configure(config: pytest.Config) -> None:
    """Forget the variable for tools in the process that runs tests, but not in one that hands them out to others."""
    if not getattr(config.option, "numprocesses", None):
        tools.forget_variable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, since their tests share fixtures, and some folders as a whole."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # which has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.split("/")[-2]
            return folder if folder in TOGETHER else file

    return ByFile(config, log)


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
