"""Linters and the type checker, so that one test command says whether all is well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "arguments", [("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)], ids=["ruff", "format", "mypy"]
)
def test_the_source_is_clean(arguments: tuple[str, ...]) -> None:
    """Ruff, its formatter and mypy --strict have nothing to say about package and tests."""
    finished = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stdout + finished.stderr
