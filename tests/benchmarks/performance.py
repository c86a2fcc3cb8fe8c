"""What the exporter costs, and whether its figures hold against `openssl speed`: the tables of docs/performance.md.

Run: python -m tests.benchmarks.performance [cost] [daemon] [openssl]     (all three by default; about four minutes)
"""

from __future__ import annotations

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

from aes_exporter import paths
from aes_exporter.capabilities import architecture

PROGRAM = (sys.executable, "-m", "aes_exporter")
SIZES = (16, 64, 256, 1024, 8192, 16384)
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


def openssl_speed(algorithm: str, operation: str, size: int, environment: dict[str, str]) -> float:
    """Return bytes per second of one `openssl speed` of a second."""
    decrypt = ("-decrypt",) if operation == "decrypt" else ()
    command = ("openssl", "speed", "-elapsed", "-mr", "-seconds", "1", "-bytes", str(size), *decrypt, "-evp", algorithm)
    output = subprocess.run(command, capture_output=True, check=True, env=environment, text=True).stdout
    match = re.search(r"^\+F:\d+:[^:]+:([\d.]+)", output, re.MULTILINE)
    assert match, output
    return float(match[1])


def against_openssl() -> None:
    """Every libcrypto cell over the best of three `openssl speed` runs (six at 16 bytes) in the same minutes."""
    results = bench("--benchmark.engine=libcrypto")["results"]
    ours = {(each["algorithm"], each["operation"], each["path"], each["block_size"]): each for each in results}
    print("\n| exporter over `openssl speed` |", " | ".join(map(str, SIZES)), "|")
    print("|---" * (len(SIZES) + 1) + "|")
    ratios = []
    for algorithm, operation, path, _ in dict.fromkeys((*key[:3], 0) for key in ours):
        environment = paths.environment(path, architecture(), os.environ)
        assert isinstance(environment, dict)
        line = []
        for size in SIZES:
            tries = [openssl_speed(algorithm, operation, size, environment) for _ in range(6 if size == 16 else 3)]
            line.append(ours[algorithm, operation, path, size]["bytes_per_second"] / max(tries))
        ratios += line
        print(f"| {algorithm} {operation}, {path} |", " | ".join(f"{ratio:.3f}" for ratio in line), "|", flush=True)
    row("\nlowest of all", f"{min(ratios):.3f}", "0.95")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["cost", "daemon", "openssl"]
    print("| what | measured | goal |\n|---|---|---|")
    for name in chosen:
        {"cost": cost, "daemon": served, "openssl": against_openssl}[name]()
