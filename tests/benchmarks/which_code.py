"""Whether implementation.py is right about a libcrypto: each cell is run under gdb and its instructions looked at.

Run: python -m tests.benchmarks.which_code [LIBCRYPTO]     (x86-64, with gdb; the installed libcrypto by default; 3 min)

Prints, per path and cell, the name that the rules give and the code seen; exits with 1 where they differ. Libraries are
stripped, so there is no function to break at but EVP_EncryptUpdate and EVP_DecryptUpdate. From there on the call is
stepped through, and what it executes tells the code: AES instructions, byte shuffles, bit-slicing, loads from tables.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aes_exporter import paths
from aes_exporter.capabilities import architecture, parse_words
from aes_exporter.implementation import UNKNOWN, implementation
from aes_exporter.model import Exemption
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell
from aes_exporter.worker.engines.libcrypto import Libcrypto
from aes_exporter.worker.probe import Probe

MODULE = "tests.benchmarks.which_code"
ROOT = Path(__file__).parents[2]
SIZES = (16, 64, 112, 128, 256, 1024, 8192, 16384)
CELLS = tuple(
    Cell(algorithm=algorithm, operation=operation, block_size=size)
    for algorithm in ALGORITHMS
    for operation in OPERATIONS
    for size in SIZES
)
TABLE_LOAD = re.compile(r"(mov\w*|xor) +\w*\(%\w+,%\w+,[18]\),%[er]")
"""An integer register filled from a base and an index: an S-box of bytes, or a table of eight bytes an entry."""
TABLE_LOADS = 50
"""One AES block by tables takes 160 of them, most of which are among the steps; other code has hardly any."""

# Runs inside gdb, whose Python knows nothing of this project. So many steps lead well into the loop of any code.
STEPPER = """
import collections, json, gdb

texts = {}

def step_through(limit=1200):
    back, counts = gdb.newest_frame().older().pc(), collections.Counter()
    for _ in range(limit):
        pc = gdb.newest_frame().pc()
        if pc == back:
            break
        if pc not in texts:
            texts[pc] = gdb.newest_frame().architecture().disassemble(pc)[0]["asm"]
        counts[texts[pc]] += 1
        gdb.execute("stepi", to_string=True)
    return counts

def go_on():
    # The table code saves and restores the flags, the one that gdb steps by included: clear it, or each step is a trap.
    while gdb.selected_inferior().pid:
        gdb.execute("set $eflags &= ~0x100")
        gdb.execute("continue")
        if isinstance(stops[-1], gdb.BreakpointEvent):
            break

stops = []
gdb.events.stop.connect(stops.append)
gdb.execute("set breakpoint pending on")
gdb.execute("break EVP_EncryptUpdate")
gdb.execute("break EVP_DecryptUpdate")
gdb.execute("run")
while gdb.selected_inferior().pid:
    print("stepped " + json.dumps(step_through()), flush=True)
    go_on()
"""


def call_each_cell(libcrypto: str | None) -> None:
    """Say what the library is, and call it once for each cell: this is the process that gdb looks at."""
    engine = Libcrypto(libcrypto, Probe(None))
    print("library", json.dumps([engine.library.name, engine.capabilities]), flush=True)
    for cell in CELLS:
        engine.operation(cell).slice(0, 1)


def under_gdb(environment: dict[str, str], libcrypto: str | None) -> tuple[str, str, list[Counter[str]]]:
    """Return the library's name, its capability line, and how often each call executed which instruction."""
    child = (sys.executable, "-m", MODULE, "--call", *([libcrypto] if libcrypto else []))
    command = ("gdb", "-nx", "-batch", "-ex", f"python exec({STEPPER!r})", "--args", *child)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    said = [line.partition(" ") for line in done.stdout.splitlines()]
    ((name, capabilities),) = (json.loads(value) for word, _, value in said if word == "library")
    return name, capabilities, [Counter(json.loads(value)) for word, _, value in said if word == "stepped"]


def code_seen(executed: Counter[str]) -> str:
    """Return the name of the code that a call's instructions, with their numbers, belong to."""
    mnemonics = {text.split()[0] for text in executed}
    if any(each.startswith(("aesenc", "aesdec")) for each in mnemonics):
        return "aesni"
    if "pshufb" in mnemonics:
        return "bsaes" if "psllq" in mnemonics else "vpaes"
    loads = sum(number for text, number in executed.items() if TABLE_LOAD.match(text))
    return "table" if loads >= TABLE_LOADS else UNKNOWN


def compare(path: str, libcrypto: str | None) -> Iterator[bool]:
    """Print a line per cell of a path; yield whether name and code agree."""
    environment = paths.environment(path, architecture(), os.environ)
    if isinstance(environment, Exemption):
        print(f"{path}: {environment}")
        return
    name, capabilities, calls = under_gdb(environment, libcrypto)
    for cell, executed in zip(CELLS, calls, strict=True):
        derived = implementation(cell, parse_words(capabilities), architecture(), name)
        seen = code_seen(executed)
        verdict = "" if derived == seen else "   <- they differ"
        print(
            f"{path:9} {cell.algorithm} {cell.operation} {cell.block_size:6}  {derived:8} {seen:8}{verdict}", flush=True
        )
        yield derived == seen


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--call"]:
        call_each_cell(arguments[1] if arguments[1:] else None)
        return 0
    libcrypto = arguments[0] if arguments else None
    agreed = [agree for path in ("hardware", "software", "table") for agree in compare(path, libcrypto)]
    print(f"{sum(agreed)} of {len(agreed)} agree")
    return 0 if agreed and all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
