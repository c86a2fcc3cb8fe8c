"""docs/reliability.md names tests; each of them must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "reliability.md").read_text())


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_named_tests_exist(file: str, test: str) -> None:
    """Every test that the page gives as evidence is there, under that name."""
    text = (ROOT / file).read_text()

    assert re.search(rf"def {test}\(", text) or not test
