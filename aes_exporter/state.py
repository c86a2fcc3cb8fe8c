"""What became of a host's AES instructions, as each engine finds them.

A run and its host in, a State out. Pure: knows neither how these facts were found nor how they are told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from aes_exporter.model import Failure, Host, Lane, Measurement, NotApplicable, Outcome, Run
from aes_exporter.verdict import accelerated
from aes_exporter.vocabulary import Reason


class State(StrEnum):
    """The states in the order in which they are tried: the first that holds counts."""

    FAILED = "failed"
    MASKED = "masked"
    HIDDEN = "hidden"
    ABSENT = "absent"
    UNUSED = "unused"
    ACCELERATED = "accelerated"


PADLOCK = frozenset(("ace", "ace_en"))

# Flags that together stand for AES instructions; any one set of an architecture does.
_INSTRUCTIONS: Mapping[str, tuple[frozenset[str], ...]] = {
    "x86_64": (frozenset(("aes",)), PADLOCK),
    "x86": (frozenset(("aes",)), PADLOCK),
    "aarch64": (frozenset(("aes",)),),
    "arm": (frozenset(("aes",)),),
    "ppc64": (frozenset(("vcrypto",)),),
    "s390x": (frozenset(("msa",)),),
    "riscv64": (frozenset(("zknd", "zkne")), frozenset(("zvkned",))),
}


def states(run: Run, host: Host) -> dict[str, State]:
    """Return the state for each engine of a run that has one."""
    engines = dict.fromkeys(lane.engine for lane in run.outcomes)
    found = {engine: hardware_state(engine, run, host, fast=accelerated(engine, run)) for engine in engines}
    return {engine: state for engine, state in found.items() if state is not None}


def hardware_state(engine: str, run: Run, host: Host, *, fast: bool | None) -> State | None:
    """Return the state of the AES instructions for an engine; None if it is unavailable, not in the run, or unknown.

    `fast` is whether the hardware path is as fast as only AES instructions are; None where that was not found out. Then
    the flags that the library sees decide. Unknown the state is where the host's flags are not known and the library
    shows no AES.
    """
    outcome = run.outcomes.get(Lane(engine=engine, path="hardware"))
    if outcome is None or _unavailable(outcome):
        return None
    if isinstance(outcome, Failure):
        return State.FAILED
    if host.masks:
        return State.MASKED
    return _unmasked(outcome, host, hidden=run.hidden, fast=fast)


def _unavailable(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.reason is Reason.ENGINE_UNAVAILABLE


def _unmasked(
    outcome: Measurement | NotApplicable, host: Host, *, hidden: bool | None, fast: bool | None
) -> State | None:
    seen = outcome.cpu_flags if isinstance(outcome, Measurement) else ()
    used = isinstance(outcome, Measurement) and (_has_aes(seen, host) if fast is None else fast)
    if not used and not _has_aes({*seen, *(host.flags or ())}, host):
        if hidden:
            return State.HIDDEN
        # A library that looked at the CPU itself and found none is as good a witness as the host's flags.
        return State.ABSENT if host.flags is not None or isinstance(outcome, NotApplicable) else None
    return State.ACCELERATED if used else State.UNUSED


def _has_aes(flags: Collection[str], host: Host) -> bool:
    return any(each <= set(flags) for each in _INSTRUCTIONS.get(host.architecture, ()))
