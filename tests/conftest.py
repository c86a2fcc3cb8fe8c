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


def pytest_configure(config: pytest.Config) -> None:
    """Forget the variable for tools in the process that runs tests, but not in one that hands them out to others."""
    if not getattr(config.option, "numprocesses", None):
        tools.forget_variable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, since their tests share fixtures, and some of them together."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # which has no types
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid.partition("::")[0])

    return ByFile(config, log)


def _together(file: str) -> str:
    """Return what a file has in common with others: a costly fixture, or the user as which its daemons run."""
    folder, name = file.split("/")[-2:]
    if folder == "deployment":
        return "machines" if name in ("test_release.py", "test_systemd.py") else "containers"
    return folder if folder == "faults" else file


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
