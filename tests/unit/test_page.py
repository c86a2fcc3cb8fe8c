"""The landing page: where its links lead, and that nothing from outside becomes HTML."""

from __future__ import annotations

import re
from dataclasses import replace

from aes_exporter import __version__
from aes_exporter.page import page
from tests.snapshots import FRESH, HOST


def test_links_are_relative() -> None:
    """All links start from the page itself, so that they work below any prefix of a proxy."""
    assert re.findall('href="([^"]*)"', page(FRESH, "/a:b/metrics")) == ["./a:b/metrics", "./-/healthy", "./-/ready"]


def test_name_version_and_host() -> None:
    """The page says what it is, which version, and whose figures it has."""
    text = page(FRESH, "/metrics")

    assert "<h1>aes-exporter</h1>" in text
    assert f"Version {__version__}, measuring AES on {HOST.brand}." in text


def test_a_cpu_without_a_name() -> None:
    """Where the CPU's name is not known, its architecture stands for it."""
    assert "measuring AES on x86_64." in page(replace(FRESH, host=replace(HOST, brand="")), "/metrics")


def test_everything_is_escaped() -> None:
    """Names and paths from outside cannot become markup."""
    text = page(replace(FRESH, host=replace(HOST, brand="<b>\"'&")), "/&'")

    assert "&lt;b&gt;&quot;&#x27;&amp;" in text
    assert 'href="./&amp;&#x27;"' in text
    assert "<b>" not in text
