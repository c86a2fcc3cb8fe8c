"""What chains of known length tell of the CPU: its clock, what its AES instructions allow, which rounds were quiet.

Slices of the chains in, a Silicon out; pure. The chains themselves are in worker/chains.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aes_exporter.model import Limit, Silicon
from aes_exporter.worker.messages import Slice

BLOCK_BYTES = 16

QUIET = 1.003
"""A round is quiet if its clock chain took at most this many times its shortest: a moving clock shows in it, and a busy
sibling thread in part."""

# CBC encryption waits for every block, so its limit is the block chain; everything else is limited by throughput.
_LIMITS = (
    ("aes-128-cbc", "encrypt", "aes", "cbc"),
    ("aes-128-cbc", "decrypt", "aes", "decrypt"),
    ("aes-128-ecb", "encrypt", "aes", "encrypt"),
    ("aes-128-ecb", "decrypt", "aes", "decrypt"),
    ("aes-128-cbc", "decrypt", "vaes", "vaes_decrypt"),
    ("aes-128-ecb", "encrypt", "vaes", "vaes_encrypt"),
    ("aes-128-ecb", "decrypt", "vaes", "vaes_decrypt"),
)


def silicon(chains: Mapping[str, Sequence[Slice]]) -> Silicon | None:
    """Return what slices of chains tell, by the name of the chain, one slice a round; None without the clock.

    A slice's calls are cycles for "clock" and AES-128 blocks for the others.
    """
    clock = _nanoseconds_per_unit(chains.get("clock", ()))
    if not clock:
        return None
    return Silicon(
        core_hertz=1e9 / min(clock),
        quiet_ratio=sum(quiet_rounds(chains["clock"])) / len(clock),
        limits=tuple(
            Limit(
                algorithm=algorithm,
                operation=operation,
                instructions=instructions,
                bytes_per_second=BLOCK_BYTES * 1e9 / min(_nanoseconds_per_unit(chains[name])),
            )
            for algorithm, operation, instructions, name in _LIMITS
            if chains.get(name)
        ),
    )


def quiet_rounds(clock: Sequence[Slice]) -> list[bool]:
    """Return for each slice of the clock chain whether its round was quiet."""
    times = _nanoseconds_per_unit(clock)
    return [time <= QUIET * min(times) for time in times]


def _nanoseconds_per_unit(slices: Sequence[Slice]) -> list[float]:
    return [each.wall_ns / each.calls for each in slices]
