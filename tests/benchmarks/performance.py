"""What the exporter costs, and whether its figures hold against `openssl speed`: the tables of docs/performance.md.

Run: python -m tests.benchmarks.performance [cost] [daemon] [openssl]     (all three by default; about four minutes)
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aes_exporter import rounds
from aes_exporter.config import load
from aes_exporter.host import read
from tests.benchmarks import openssl

PROGRAM = (sys.executable, "-m", "aes_exporter")
TICKS = os.sysconf("SC_CLK_TCK")


def bench(*flags: str) -> dict:  # type: ignore[type-arg]
    """Return what `bench --format json` measures."""
    command = (*PROGRAM, "bench", "--format=json", *flags)
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # type: ignore[no-any-return]


def row(what: str, figure: str, goal: str) -> None:
    print(f"| {what} | {figure} | {goal} |", flush=True)


def cost() -> None:
    """CPU seconds of a default run, the daemon's share and its workers included; median of five."""
    for engines, goal in ((("libcrypto",), 1.8), (("libcrypto", "cryptography"), 3.2)):
        flags = [f"--benchmark.engine={engine}" for engine in engines]
        seconds = [bench(*flags)["run"]["cpu_seconds"] for _ in range(5)]
        row(f"CPU of a default run, {' and '.join(engines)}", f"{statistics.median(seconds):.2f} s", f"{goal} s")
    burst()


def burst() -> None:
    """How long a round of a default run takes, which is how long the CPU is taken at a time."""
    ends = [time.monotonic()]
    plan = load("bench", {}, {}).plan
    asyncio.run(rounds.measure(plan, read(), progress=lambda _done, _planned: ends.append(time.monotonic())))
    lengths = sorted(end - start for start, end in itertools.pairwise(ends[1:]))
    row("burst of a default run, median", f"{statistics.median(lengths) * 1e3:.0f} ms", "60 ms")
    row("burst of a default run, 95 % below", f"{lengths[len(lengths) * 95 // 100] * 1e3:.0f} ms", "60 ms")


@contextmanager
def daemon(port: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen((*PROGRAM, f"--web.listen-address=127.0.0.1:{port}", *flags), stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        return str(reply.read().decode())


def first_data(port: int) -> float:
    """Return seconds until a scrape has throughput in it."""
    start = time.monotonic()
    while True:
        try:
            if "\naes_throughput_bytes_per_second{" in scrape(port):
                return time.monotonic() - start
        except OSError:
            pass
        time.sleep(0.02)


def busy_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid: int) -> float:
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match[1]) / 1000 if match else float("nan")


def served(port: int = 10799) -> None:
    """First data, scrape time, and what the daemon takes while it idles."""
    with daemon(port, "--benchmark.interval=10m") as process:
        row("first data on /metrics after start", f"{first_data(port):.2f} s", "8 s")
        time.sleep(5)
        times = []
        for _ in range(100):
            start = time.perf_counter()
            size = len(scrape(port))
            times.append(time.perf_counter() - start)
        row(f"a scrape of {size} bytes, median", f"{statistics.median(times) * 1e3:.1f} ms", "10 ms")
        row("a scrape, slowest of 100", f"{max(times) * 1e3:.1f} ms", "")
        before, start = busy_seconds(process.pid), time.monotonic()
        time.sleep(20)
        share = (busy_seconds(process.pid) - before) / (time.monotonic() - start)
        row("idle daemon, CPU", f"{share:.2%}", "0.3 %")
        row("idle daemon, resident memory", f"{resident_megabytes(process.pid):.1f} MB", "40 MB")


def against_openssl() -> None:
    """Every libcrypto cell over the best of three `openssl speed` runs (six at 16 bytes) in the same minutes."""
    results = bench("--benchmark.engine=libcrypto")["results"]
    ours = {(each["algorithm"], each["operation"], each["path"], each["block_size"]): each for each in results}
    print("\n| exporter over `openssl speed` |", " | ".join(map(str, openssl.SIZES)), "|")
    print("|---" * (len(openssl.SIZES) + 1) + "|")
    ratios = []
    for row_of in dict.fromkeys(key[:3] for key in ours):
        line = [ours[*row_of, size]["bytes_per_second"] / openssl.best(*row_of, size) for size in openssl.SIZES]
        ratios += line
        print(f"| {' '.join(row_of)} |", " | ".join(f"{ratio:.3f}" for ratio in line), "|", flush=True)
    row("\nlowest of all", f"{min(ratios):.3f}", "0.95")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["cost", "daemon", "openssl"]
    print("| what | measured | goal |\n|---|---|---|")
    for name in chosen:
        {"cost": cost, "daemon": served, "openssl": against_openssl}[name]()
