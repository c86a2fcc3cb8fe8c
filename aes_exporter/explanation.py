"""What to tell people about the state of AES on their host: what it means, and what to check next.

A state and the facts behind it in, two texts out, for log, page and `bench` alike. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aes_exporter.model import Exemption, Failure, Host, Lane, Mask, Measurement, NotApplicable, Outcome, Run
from aes_exporter.state import PADLOCK, State
from aes_exporter.vocabulary import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """For people: what a state means and what to check next, at most two sentences each."""

    summary: str
    advice: str


_WORDS: Mapping[Reason | Exemption, str] = {
    Reason.TIMEOUT: "no answer in time",
    Reason.CRASH: "the worker ended with an error",
    Reason.SIGNAL: "the worker was ended by a signal",
    Reason.BAD_REPLY: "the worker's answer made no sense",
    Reason.WRONG_ANSWER: "the library computed wrong bytes, so its speed means nothing",
    Reason.MASK_INEFFECTIVE: "AES instructions were masked and still in use",
    Reason.ENGINE_UNAVAILABLE: "this engine cannot be used here",
    Reason.VERSION_MISMATCH: "the installed package is of another version than this process",
    Reason.SPAWN_FAILED: "the worker could not be started",
    Exemption.NO_HARDWARE: "this CPU shows no AES instructions",
    Exemption.MASK_UNSUPPORTED: "AES instructions cannot be masked on this architecture",
    Exemption.NOT_HIDDEN: "no AES instructions are hidden here",
}

_ANSWERS: Mapping[State | None, str] = {
    State.ACCELERATED: "AES is accelerated here.",
    State.UNUSED: "AES is not accelerated here.",
    State.ABSENT: "AES is not accelerated here.",
    State.HIDDEN: "AES is not accelerated here.",
    State.MASKED: "AES is not accelerated here.",
    State.FAILED: "AES could not be measured here.",
    None: "Whether AES is accelerated here is not known.",
}

_AFTER_FAILURE: Mapping[Reason, str] = {
    Reason.TIMEOUT: "Look for a CPU limit or an overload of this host, or allow more time with --benchmark.timeout.",
    Reason.CRASH: "Look for the worker's last words in the log, and check that the library's package is whole.",
    Reason.SIGNAL: "Look in the kernel's log of that moment for an illegal instruction, a fault or a lack of memory.",
    Reason.BAD_REPLY: "Look for the worker's last words in the log, and check that the exporter is installed once.",
    Reason.WRONG_ANSWER: "Trust neither this library nor this CPU with data until you know which of them is wrong.",
    Reason.VERSION_MISMATCH: "Restart the exporter: its package was upgraded while it ran.",
    Reason.SPAWN_FAILED: "Check the limits on processes, memory and open files of the exporter's service.",
}
_SEE_LOG = "Look in the log of the exporter; the next run tries again."

_POWER_CYCLE = "then power the guest off and on, since a reboot from inside changes nothing."
_QEMU = (
    "Give the guest the CPU mode host-passthrough or host-model in libvirt (-cpu host in QEMU), or add +aes to its CPU "
    f"model, {_POWER_CYCLE}"
)
_UNHIDE_ON_X86: Mapping[str, str] = {
    "KVM": _QEMU,
    "QEMU": _QEMU,
    "OpenStack": "Let Nova use cpu_mode = host-passthrough or host-model, or add aes to cpu_model_extra_flags, "
    f"{_POWER_CYCLE}",
    "VMware": 'Raise the EVC level of cluster and VM to Intel "Westmere" or AMD "Opteron Generation 4" at least, drop '
    f"CPUID masks of the VM, {_POWER_CYCLE}",
    "Hyper-V": "Switch the VM's processor compatibility mode off (Set-VMProcessor -CompatibilityForMigrationEnabled "
    f"$false), {_POWER_CYCLE}",
    "Xen": "Take AES out of the CPUID masks of the guest (cpuid= in its xl configuration), of Xen's command line "
    f"(cpuid_mask_ecx=) and of the pool's CPU levelling, {_POWER_CYCLE}",
    "VirtualBox": f"Give the VM the host's CPU profile (VBoxManage modifyvm NAME --cpu-profile host), {_POWER_CYCLE}",
}
_UNMASK = (
    "Remove it (from an environment: in the unit, container or kernel command line that makes it), then reboot, or log "
    "in again and restart what inherited it."
)
_UNMASKED_SPEED = " The exporter measures without it, so its hardware path shows what programs would reach."
_MOST_PLACES = 3


def answer(state: State | None) -> str:
    """Return the shortest sentence about a state: whether AES is accelerated."""
    return _ANSWERS[state]


def why(outcome: Failure | NotApplicable) -> str:
    """Return in words why a lane was not measured, with the reason as the metrics have it, and the details."""
    words = f"{_WORDS[outcome.reason]} ({outcome.reason})"
    return f"{words}: {outcome.detail}" if isinstance(outcome, Failure) else words


def explain(state: State | None, engine: str, run: Run, host: Host) -> Explanation:
    """Return what to tell people about the state that `hardware_state` found for the same engine, run and host.

    None is what it returns where nobody can tell.
    """
    outcome = run.outcomes.get(Lane(engine=engine, path="hardware"))
    return _undecided(engine, outcome) if state is None else _explain(state, engine, outcome, run, host)


def _explain(state: State, engine: str, outcome: Outcome | None, run: Run, host: Host) -> Explanation:
    library = _library(engine, run)
    match state:
        case State.FAILED:
            return _failed(engine, outcome)
        case State.MASKED:
            return _masked(host.masks, measured=isinstance(outcome, Measurement))
        case State.HIDDEN:
            return _hidden(engine, run, host)
        case State.ABSENT:
            return Explanation(summary=_without(host, library), advice=_instead(host))
        case State.UNUSED:
            return _unused(engine, run, host)
        case State.ACCELERATED:
            return Explanation(summary=f"This CPU's AES instructions are used by {library}.", advice="Nothing to do.")


def _measured(engine: str, run: Run) -> Measurement | None:
    """Return what was measured of an engine, on whatever path: its library is the same on all."""
    return next((measurement for lane, measurement in run.measured() if lane.engine == engine), None)


def _library(engine: str, run: Run) -> str:
    measurement = _measured(engine, run)
    return f"{measurement.library.name if measurement else 'the library'} (engine {engine})"


def _x86(host: Host) -> bool:
    return host.architecture in ("x86_64", "x86")


def _failed(engine: str, outcome: Outcome | None) -> Explanation:
    summary = f"The hardware path of engine {engine} could not be measured"
    if not isinstance(outcome, Failure):
        return Explanation(summary=f"{summary}.", advice=_SEE_LOG)
    detail = outcome.detail.rstrip(". ")
    return Explanation(
        summary=f"{summary} ({outcome.reason}){': ' if detail else ''}{detail}.",
        advice=_AFTER_FAILURE.get(outcome.reason, _SEE_LOG),
    )


def _undecided(engine: str, outcome: Outcome | None) -> Explanation:
    if isinstance(outcome, Failure):
        return Explanation(summary=f"Of engine {engine} nothing is known: {why(outcome)}.", advice=_SEE_LOG)
    if outcome is None:
        return Explanation(summary="The hardware path is not measured.", advice="Add it with --benchmark.path.")
    return Explanation(
        summary="Neither this host nor the library shows CPU flags.",
        advice="Compare the hardware path with the software path.",
    )


def _masked(masks: Sequence[Mask], *, measured: bool) -> Explanation:
    settings = [f'{mask.variable}="{mask.value}" in {mask.place}' for mask in masks[:_MOST_PLACES]]
    more = [f"and {len(masks) - _MOST_PLACES} more"] if len(masks) > _MOST_PLACES else []
    return Explanation(
        summary=f"A setting keeps programs of this host from using AES instructions: {'; '.join(settings + more)}.",
        advice=_UNMASK + (_UNMASKED_SPEED if measured else ""),
    )


def _hidden(engine: str, run: Run, host: Host) -> Explanation:
    summary = (
        f"The AES instructions of this CPU work, but {host.hypervisor or 'firmware or kernel'} hides them, so "
        f"{_library(engine, run)} runs AES in software."
    )
    forced = run.outcomes.get(Lane(engine=engine, path="forced"))
    lost = " The path forced shows what is lost until then." if isinstance(forced, Measurement) else ""
    return Explanation(summary=summary, advice=_unhide(host) + lost)


def _unhide(host: Host) -> str:
    if _x86(host) and host.hypervisor in _UNHIDE_ON_X86:
        return _UNHIDE_ON_X86[host.hypervisor]
    if host.hypervisor:
        return (
            f"Ask whoever runs {host.hypervisor} to give this guest the CPU features of the host, AES among them, or "
            "choose another machine type."
        )
    if _x86(host):
        return "Look for clearcpuid= on the kernel command line and for an AES option in the firmware setup."
    return (
        "Look for cores without AES, since the kernel shows what all cores have, and for overrides on its command line."
    )


def _without(host: Host, library: str) -> str:
    if host.hypervisor:
        return f"{host.hypervisor} gives this guest a CPU without AES instructions, so {library} runs AES in software."
    brand = f" ({host.brand})" if host.brand else ""
    return f"This CPU{brand} has no AES instructions, so {library} runs AES in software."


def _instead(host: Host) -> str:
    if host.hypervisor:
        return (
            f"Check the CPU model that {host.hypervisor} gives this guest, then CPU and firmware of the machine below: "
            "where firmware disabled the instructions, they fault as if they were missing."
        )
    if _x86(host):
        return (
            "If its data sheet promises AES-NI, switch that on in the firmware setup: disabled there, the instructions "
            "fault as if they were missing. Otherwise only another CPU helps."
        )
    if host.architecture in ("aarch64", "arm"):
        return (
            "There is nothing to switch on: many ARM cores are built without the Cryptography Extensions, those of "
            "Raspberry Pi 1 to 4 among them. ChaCha20-Poly1305 is the faster cipher here, where protocols offer it."
        )
    return "Only another CPU helps. ChaCha20-Poly1305 is the faster cipher here, where protocols offer it."


def _unused(engine: str, run: Run, host: Host) -> Explanation:
    library, measurement = _library(engine, run), _measured(engine, run)
    if host.flags and _x86(host) and host.flags >= PADLOCK and "aes" not in host.flags:
        return Explanation(
            summary=f"This CPU has AES in VIA PadLock, but {library} does not use it.",
            advice='OpenSSL reaches it only through its engine "padlock", which OpenSSL 4.0 no longer has; see openssl '
            "engine padlock.",
        )
    summary = f"This CPU has AES instructions, but {library} does not use them."
    if _x86(host) and measurement and measurement.library.name.startswith("LibreSSL"):
        advice = "LibreSSL left AES-NI off by mistake until September 2024: install a later release."
    else:
        file = measurement.library.file if measurement and measurement.library.file else "the library"
        advice = (
            f"Check whether {file} was built without assembly (no-asm), and whether openssl.cnf or OPENSSL_CONF brings "
            "in another provider or engine."
        )
    return Explanation(summary=summary, advice=advice)
