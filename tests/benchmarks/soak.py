"""Whether a daemon grows: a run every second, a scrape every tenth of one, and what it holds from start to end.

Run: python -m tests.benchmarks.soak [RUNS] [FLAG...]     (300 runs by default, five minutes; ends with 1 if it grew)
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.daemons import QUICK, Daemon, daemon
from tests.processes import children, descriptors

SETTLED = 10
"""Runs after which all is loaded that is ever loaded, and growth counts."""

GROWTH_MEGABYTES = 1.0


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What a daemon holds at a moment between two runs."""

    runs: int
    failed: int
    skipped: int
    resident_megabytes: float
    anonymous_megabytes: float
    descriptors: int
    threads: int
    processes: int
    files: int

    def __str__(self) -> str:
        megabytes = (f"{each:.1f} MB" for each in (self.resident_megabytes, self.anonymous_megabytes))
        counts = (self.descriptors, self.threads, self.processes, self.files)
        return f"| {' | '.join(map(str, (self.runs, self.failed, self.skipped, *megabytes, *counts)))} |"


COLUMNS = ("runs", "failed", "skipped", "memory", "of it anonymous", "descriptors", "threads", "workers", "files")
HEADER = f"| {' | '.join(COLUMNS)} |\n" + "|---" * len(COLUMNS) + "|"


class Soak:
    """Scrapes a daemon ten times a second and remembers how long that took at worst."""

    def __init__(self, subject: Daemon, folder: Path) -> None:
        self._subject = subject
        self._folder = folder
        self.scrapes = 0
        self.slowest_seconds = 0.0

    def scraped(self) -> str:
        """Scrape after a tenth of a second."""
        time.sleep(0.1)
        began = time.perf_counter()
        text = self._subject.metrics()
        self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - began)
        self.scrapes += 1
        return text

    def after(self, runs: int) -> Holdings:
        """Go on until so many runs have ended and none is under way, and return what the daemon then holds."""
        while True:
            text = self.scraped()
            if value(text, "runs_total") >= runs and not value(text, "run_in_progress") and not self._workers():
                return self._holdings(text)

    def _workers(self) -> int:
        return len(children(self._subject.process.pid))

    def _holdings(self, text: str) -> Holdings:
        pid = self._subject.process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        return Holdings(
            runs=value(text, "runs_total"),
            failed=value(text, "runs_failed_total"),
            skipped=value(text, "runs_skipped_total"),
            resident_megabytes=number(r"VmRSS:\s+(\d+)", status) / 1000,
            anonymous_megabytes=number(r"RssAnon:\s+(\d+)", status) / 1000,
            descriptors=descriptors(pid),
            threads=int(number(r"Threads:\s+(\d+)", status)),
            processes=self._workers(),
            files=sum(1 for _ in self._folder.rglob("*")),
        )


def value(text: str, name: str) -> int:
    return int(number(rf"^aes_exporter_{name} (\S+)", text))


def number(pattern: str, text: str) -> float:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, pattern
    return float(match[1])


def soak(runs: int, *flags: str) -> bool:
    """Print a table of `runs` runs, and return whether the daemon holds no more at its end than at its start."""
    with (
        tempfile.TemporaryDirectory() as name,
        daemon(Path(name), *QUICK, "--benchmark.interval=1s", *flags) as subject,
    ):
        subject.wait_until_ready()
        course = Soak(subject, Path(name))
        print(HEADER)
        start = end = course.after(min(SETTLED, runs))
        for quarter in range(1, 5):
            print(end, flush=True)
            end = course.after(runs * quarter // 4)
        print(end)
        print(f"\n{course.scrapes} scrapes, the slowest in {course.slowest_seconds * 1e3:.0f} ms")
        ended = subject.end() == 0
    return ended and all(
        (
            end.resident_megabytes <= start.resident_megabytes + GROWTH_MEGABYTES,
            (end.descriptors, end.threads, end.files) == (start.descriptors, start.threads, start.files),
        )
    )


if __name__ == "__main__":
    asked = sys.argv[1] if sys.argv[1:] and sys.argv[1].isdigit() else ""
    sys.exit(not soak(int(asked or 300), *sys.argv[2 if asked else 1 :]))
