"""One run of the libcrypto engine at the daemon's pace, and with every slice of it: what accuracy.py starts many times.

Run: python -m tests.benchmarks.recorded     (45 s; prints the JSON of `aes-exporter bench` with the slices added)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aes_exporter import host, report, rounds, workers
from aes_exporter.config import load
from aes_exporter.worker.messages import Slice, Slices, Turn
from aes_exporter.workers import Worker


class Recorder:
    """Starts real workers and keeps every reply of theirs, a list per worker in the order of their starts."""

    def __init__(self) -> None:
        self.lanes: list[list[Slices]] = []

    @asynccontextmanager
    async def start(self, environment: Mapping[str, str]) -> AsyncIterator[Worker]:
        async with workers.start(environment) as worker:
            kept: list[Slices] = []
            self.lanes.append(kept)
            take_turn = worker.take_turn

            async def recorded(turn: Turn, *, cells: int) -> Slices:
                kept.append(await take_turn(turn, cells=cells))
                return kept[-1]

            worker.take_turn = recorded  # type: ignore[method-assign]
            yield worker


def main() -> None:
    plan = load("serve", {"--benchmark.engine": ["libcrypto"]}, {}).plan
    recorder = Recorder()
    known = host.read()
    run = asyncio.run(rounds.measure(plan, known, start=recorder.start))
    found = json.loads(report.json_text(known, run))
    found["clock"] = [_numbers(turn.chains[0]) for turn in recorder.lanes[0] if turn.chains]
    found["slices"] = [
        {"algorithm": cell.algorithm, "operation": cell.operation, "path": lane.path, "block_size": cell.block_size}
        | {"taken": [_numbers(turn.slices[index]) for turn in kept]}
        for lane, kept in zip(plan.lanes, recorder.lanes, strict=True)
        for index, cell in enumerate(plan.cells)
    ]
    print(json.dumps(found))


def _numbers(slice_: Slice) -> tuple[int, ...]:
    return slice_.calls, slice_.wall_ns, slice_.cpu_ns, *slice_.timings


if __name__ == "__main__":
    main()
