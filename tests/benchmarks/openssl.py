"""`openssl speed` as the yardstick of the benchmarks."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from aes_exporter import paths
from aes_exporter.capabilities import architecture

SIZES = (16, 64, 256, 1024, 8192, 16384)


def throughput(algorithm: str, operation: str, path: str, size: int, *, prefix: Sequence[str] = ()) -> float:
    """Return bytes per second of one `openssl speed -elapsed` of a second, started by `prefix` if there is one."""
    environment = paths.environment(path, architecture(), os.environ)
    assert isinstance(environment, dict)
    decrypt = ("-decrypt",) if operation == "decrypt" else ()
    command = ("openssl", "speed", "-elapsed", "-mr", "-seconds", "1", "-bytes", str(size), *decrypt, "-evp", algorithm)
    output = subprocess.run([*prefix, *command], capture_output=True, check=True, env=environment, text=True).stdout
    match = re.search(r"^\+F:\d+:[^:]+:([\d.]+)", output, re.MULTILINE)
    assert match, output
    return float(match[1])


def best(algorithm: str, operation: str, path: str, size: int) -> float:
    """Return the best of three runs, of six at 16 bytes, where `openssl speed` itself varies by 30 %."""
    return max(throughput(algorithm, operation, path, size) for _ in range(6 if size == 16 else 3))
