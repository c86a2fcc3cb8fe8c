"""The soak test itself, for as many runs as a test may take."""

from __future__ import annotations

import pytest

from tests.benchmarks.soak import soak


@pytest.mark.timeout(180)
def test_it_does_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    """Between one run and another the daemon gains neither memory nor descriptors, threads, processes or files."""
    assert soak(15), capsys.readouterr().out
    assert "| 0 | 0 |" in capsys.readouterr().out
