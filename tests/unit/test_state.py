"""The state of a host's AES instructions, and every sentence that people read about it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from aes_exporter.explanation import Explanation, answer, explain, why
from aes_exporter.model import Exemption, Failure, Figure, Host, Lane, Mask, Measurement, NotApplicable, Outcome, Run
from aes_exporter.state import State, hardware_state
from aes_exporter.vocabulary import Cell, Library, Reason

CELL = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=1024)
NO_HARDWARE = NotApplicable(reason=Exemption.NO_HARDWARE)
TIMED_OUT = Failure(reason=Reason.TIMEOUT, detail="no reply within 10 s")
MASK = Mask(place="/etc/environment", variable="OPENSSL_ia32cap", value="~0x200000200000000")


def measured(*flags: str, name: str = "OpenSSL 3.0.19", file: str = "/usr/lib/libcrypto.so.3") -> Measurement:
    return Measurement(
        library=Library(name=name, file=file),
        cpu_flags=flags,
        figures=(Figure(cell=CELL, best=2.0, median=1.0),),
    )


def run(hardware: Outcome | None, **others: Outcome) -> Run:
    outcomes = {**({"hardware": hardware} if hardware else {}), **others}
    return Run(
        started=0.0,
        duration_seconds=1.0,
        cpu_seconds=1.0,
        rounds=5,
        cpu=0,
        outcomes={Lane(engine="libcrypto", path=path): outcome for path, outcome in outcomes.items()},
    )


def host(*flags: str, machine: str = "x86_64", hypervisor: str = "", brand: str = "") -> Host:
    return Host(architecture=machine, flags=frozenset(flags), hypervisor=hypervisor, brand=brand)


def untold(machine: str = "x86_64") -> Host:
    return Host(architecture=machine, flags=None)


# --- states -----------------------------------------------------------------------------------------------------------


def state(
    outcome: Outcome | None,
    where: Host,
    *,
    masks: tuple[Mask, ...] = (),
    hidden: bool | None = None,
    fast: bool | None = None,
) -> State | None:
    where = replace(where, masks=masks)
    return hardware_state("libcrypto", replace(run(outcome), hidden=hidden), where, fast=fast)


def test_the_states_are_in_the_promised_order() -> None:
    """The order in which they are tried is that of the metric's documentation."""
    assert list(State) == ["failed", "masked", "hidden", "absent", "unused", "accelerated"]


@pytest.mark.parametrize(
    ("outcome", "where", "hidden", "fast", "expected"),
    [
        (TIMED_OUT, host("aes"), None, None, State.FAILED),
        (NO_HARDWARE, host("ssse3"), True, None, State.HIDDEN),
        (NO_HARDWARE, untold(), True, None, State.HIDDEN),
        (NO_HARDWARE, host("ssse3"), False, None, State.ABSENT),
        (NO_HARDWARE, host("ssse3"), None, None, State.ABSENT),
        (NO_HARDWARE, untold(), None, None, State.ABSENT),
        (NO_HARDWARE, host("aes"), None, None, State.UNUSED),
        (NO_HARDWARE, host("aes"), None, True, State.UNUSED),
        (measured("aes"), host("aes"), None, False, State.UNUSED),
        (measured(), host("aes"), None, None, State.UNUSED),
        (measured("aes"), host("aes"), None, True, State.ACCELERATED),
        (measured("aes"), host("aes"), None, None, State.ACCELERATED),
        (measured("aes"), host("ssse3"), True, None, State.ACCELERATED),  # clearcpuid=aes: the library sees it still
        (measured("aes"), host("ssse3"), True, False, State.UNUSED),
        (measured(), untold(), None, True, State.ACCELERATED),
        (measured(), untold(), None, None, None),
        (measured(), untold("mips64"), None, False, None),
    ],
)
def test_each_state_has_its_facts(
    outcome: Outcome, where: Host, hidden: bool | None, fast: bool | None, expected: State | None
) -> None:
    """A state follows from outcome, flags, the sacrificial child and the speed; without the facts there is none."""
    assert state(outcome, where, hidden=hidden, fast=fast) == expected


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", ("ace", "ace_en"), State.UNUSED),
        ("x86_64", ("ace",), State.ABSENT),
        ("x86", ("aes",), State.UNUSED),
        ("aarch64", ("asimd", "aes"), State.UNUSED),
        ("aarch64", ("asimd",), State.ABSENT),
        ("arm", ("aes",), State.UNUSED),
        ("ppc64", ("altivec", "vcrypto"), State.UNUSED),
        ("ppc64", ("altivec",), State.ABSENT),
        ("riscv64", ("zknd", "zkne"), State.UNUSED),
        ("riscv64", ("zvkned",), State.UNUSED),
        ("riscv64", ("zknd",), State.ABSENT),
        ("s390x", ("msa",), State.UNUSED),
        ("loongarch64", ("lasx", "lsx"), State.ABSENT),
    ],
)
def test_each_architecture_has_its_flags(machine: str, flags: tuple[str, ...], expected: State) -> None:
    """What stands for AES instructions is a matter of the architecture: slow with them is unused, without absent."""
    assert state(measured(), host(*flags, machine=machine), fast=False) == expected


def test_an_engine_that_is_not_there_has_no_state() -> None:
    """Neither an unavailable engine nor one outside of the run has a state, whatever the host."""
    unavailable = Failure(reason=Reason.ENGINE_UNAVAILABLE, detail="no libcrypto")

    assert state(unavailable, host("aes"), masks=(MASK,)) is None
    assert state(None, host("aes"), masks=(MASK,)) is None
    assert hardware_state("cryptography", run(measured("aes")), host("aes"), fast=True) is None


@pytest.mark.parametrize(("hidden", "fast"), list(itertools.product((True, False, None), repeat=2)))
@pytest.mark.parametrize("where", [host("aes"), host(), untold()])
def test_the_first_state_that_holds_counts(where: Host, hidden: bool | None, fast: bool | None) -> None:
    """A failure goes before a mask, and a mask before all that the flags, the child and the speed say."""
    assert state(TIMED_OUT, where, masks=(MASK,), hidden=hidden, fast=fast) is State.FAILED
    assert state(measured("aes"), where, masks=(MASK,), hidden=hidden, fast=fast) is State.MASKED
    assert state(NO_HARDWARE, where, masks=(MASK,), hidden=hidden, fast=fast) is State.MASKED


# --- sentences --------------------------------------------------------------------------------------------------------


def told(
    state: State,
    where: Host | None = None,
    *,
    hardware: Outcome | None = None,
    masks: tuple[Mask, ...] = (),
    **others: Outcome,
) -> Explanation:
    where = replace(where or host("aes"), masks=masks)
    return explain(state, "libcrypto", run(hardware, **others), where)


def test_accelerated_says_that_there_is_nothing_to_do() -> None:
    """The good state says so, and names the library."""
    assert told(State.ACCELERATED, hardware=measured("aes")) == Explanation(
        summary="This CPU's AES instructions are used by OpenSSL 3.0.19 (engine libcrypto).", advice="Nothing to do."
    )


FAILURES = {
    Reason.TIMEOUT: "Look for a CPU limit or an overload of this host, or allow more time with --benchmark.timeout.",
    Reason.CRASH: "Look for the worker's last words in the log, and check that the library's package is whole.",
    Reason.SIGNAL: "Look in the kernel's log of that moment for an illegal instruction, a fault or a lack of memory.",
    Reason.BAD_REPLY: "Look for the worker's last words in the log, and check that the exporter is installed once.",
    Reason.WRONG_ANSWER: "Trust neither this library nor this CPU with data until you know which of them is wrong.",
    Reason.MASK_INEFFECTIVE: "Look in the log of the exporter; the next run tries again.",
    Reason.VERSION_MISMATCH: "Restart the exporter: its package was upgraded while it ran.",
    Reason.SPAWN_FAILED: "Check the limits on processes, memory and open files of the exporter's service.",
}


@pytest.mark.parametrize("reason", [each for each in Reason if each is not Reason.ENGINE_UNAVAILABLE])
def test_failed_says_why_and_where_to_look(reason: Reason) -> None:
    """A failure's reason and detail are in the summary, and each reason has its advice."""
    assert told(State.FAILED, hardware=Failure(reason=reason, detail="what happened.")) == Explanation(
        summary=f"The hardware path of engine libcrypto could not be measured ({reason.value}): what happened.",
        advice=FAILURES[reason],
    )


@pytest.mark.parametrize(
    ("hardware", "summary"),
    [
        (Failure(reason=Reason.CRASH, detail=""), " (crash)."),
        (measured("aes"), "."),
        (None, "."),
    ],
)
def test_failed_makes_do_with_less(hardware: Outcome | None, summary: str) -> None:
    """A failure without a detail, or a state that does not fit the run, still makes a sentence."""
    explanation = told(State.FAILED, hardware=hardware)

    assert explanation.summary == f"The hardware path of engine libcrypto could not be measured{summary}"


UNMASK = (
    "Remove it (from an environment: in the unit, container or kernel command line that makes it), then reboot, or log "
    "in again and restart what inherited it."
)


def test_masked_names_place_and_value() -> None:
    """A mask is named so that it can be found, and the figures on the page are put in their place."""
    assert told(State.MASKED, hardware=measured("aes"), masks=(MASK,)) == Explanation(
        summary="A setting keeps programs of this host from using AES instructions: "
        'OPENSSL_ia32cap="~0x200000200000000" in /etc/environment.',
        advice=f"{UNMASK} The exporter measures without it, so its hardware path shows what programs would reach.",
    )


def test_masked_names_three_places_and_counts_the_rest() -> None:
    """Many masks do not make a long sentence; without a hardware path nothing is said about its figures."""
    empty = Mask(place="the environment of this process", variable="OPENSSL_armcap", value="")

    assert told(State.MASKED, hardware=NO_HARDWARE, masks=(empty, MASK, MASK, MASK, MASK)) == Explanation(
        summary="A setting keeps programs of this host from using AES instructions: "
        'OPENSSL_armcap="" in the environment of this process; '
        'OPENSSL_ia32cap="~0x200000200000000" in /etc/environment; '
        'OPENSSL_ia32cap="~0x200000200000000" in /etc/environment; and 2 more.',
        advice=UNMASK,
    )


CYCLE = "then power the guest off and on, since a reboot from inside changes nothing."
QEMU = (
    "Give the guest the CPU mode host-passthrough or host-model in libvirt (-cpu host in QEMU), or add +aes to its CPU "
    f"model, {CYCLE}"
)


@pytest.mark.parametrize(
    ("machine", "hypervisor", "advice"),
    [
        ("x86_64", "KVM", QEMU),
        ("x86", "QEMU", QEMU),
        (
            "x86_64",
            "OpenStack",
            "Let Nova use cpu_mode = host-passthrough or host-model, or add aes to cpu_model_extra_flags, " + CYCLE,
        ),
        (
            "x86_64",
            "VMware",
            (
                'Raise the EVC level of cluster and VM to Intel "Westmere" or AMD "Opteron Generation 4" at least, '
                f"drop CPUID masks of the VM, {CYCLE}"
            ),
        ),
        (
            "x86_64",
            "Hyper-V",
            (
                "Switch the VM's processor compatibility mode off (Set-VMProcessor -CompatibilityForMigrationEnabled "
                f"$false), {CYCLE}"
            ),
        ),
        (
            "x86_64",
            "Xen",
            (
                "Take AES out of the CPUID masks of the guest (cpuid= in its xl configuration), of Xen's command line "
                f"(cpuid_mask_ecx=) and of the pool's CPU levelling, {CYCLE}"
            ),
        ),
        (
            "x86_64",
            "VirtualBox",
            f"Give the VM the host's CPU profile (VBoxManage modifyvm NAME --cpu-profile host), {CYCLE}",
        ),
        (
            "x86_64",
            "Amazon EC2",
            (
                "Ask whoever runs Amazon EC2 to give this guest the CPU features of the host, AES among them, or "
                "choose another machine type."
            ),
        ),
        (
            "aarch64",
            "KVM",
            (
                "Ask whoever runs KVM to give this guest the CPU features of the host, AES among them, or choose "
                "another machine type."
            ),
        ),
        (
            "x86_64",
            "",
            "Look for clearcpuid= on the kernel command line and for an AES option in the firmware setup.",
        ),
        (
            "aarch64",
            "",
            (
                "Look for cores without AES, since the kernel shows what all cores have, and for overrides on its "
                "command line."
            ),
        ),
    ],
)
def test_hidden_says_how_to_show_the_instructions(machine: str, hypervisor: str, advice: str) -> None:
    """Each hypervisor has its own switch, and without one firmware and kernel are left."""
    where = host(machine=machine, hypervisor=hypervisor)

    assert told(State.HIDDEN, where, hardware=NO_HARDWARE, software=measured()) == Explanation(
        summary=f"The AES instructions of this CPU work, but {hypervisor or 'firmware or kernel'} hides them, so "
        "OpenSSL 3.0.19 (engine libcrypto) runs AES in software.",
        advice=advice,
    )


def test_hidden_points_to_the_forced_path() -> None:
    """Where the forced path was measured, the advice says what its figures are good for."""
    explanation = told(State.HIDDEN, host(hypervisor="KVM"), hardware=NO_HARDWARE, forced=measured("aes"))

    assert explanation.advice == f"{QEMU} The path forced shows what is lost until then."


GUEST = (
    "Check the CPU model that KVM gives this guest, then CPU and firmware of the machine below: where firmware "
    "disabled the instructions, they fault as if they were missing."
)
X86 = (
    "If its data sheet promises AES-NI, switch that on in the firmware setup: disabled there, the instructions fault "
    "as if they were missing. Otherwise only another CPU helps."
)
ARM = (
    "There is nothing to switch on: many ARM cores are built without the Cryptography Extensions, those of Raspberry "
    "Pi 1 to 4 among them. ChaCha20-Poly1305 is the faster cipher here, where protocols offer it."
)
OTHERS = "Only another CPU helps. ChaCha20-Poly1305 is the faster cipher here, where protocols offer it."


@pytest.mark.parametrize(
    ("where", "who", "advice"),
    [
        (host(hypervisor="KVM"), "KVM gives this guest a CPU without AES instructions", GUEST),
        (host(machine="aarch64", hypervisor="KVM"), "KVM gives this guest a CPU without AES instructions", GUEST),
        (host(brand="Pentium G640"), "This CPU (Pentium G640) has no AES instructions", X86),
        (host(machine="x86"), "This CPU has no AES instructions", X86),
        (host(machine="aarch64", brand="Cortex-A72"), "This CPU (Cortex-A72) has no AES instructions", ARM),
        (host(machine="arm"), "This CPU has no AES instructions", ARM),
        (host(machine="riscv64"), "This CPU has no AES instructions", OTHERS),
    ],
)
def test_absent_says_whether_anything_can_be_done(where: Host, who: str, advice: str) -> None:
    """Guests, x86 and ARM machines without AES instructions have different ways out, or none."""
    assert told(State.ABSENT, where, hardware=NO_HARDWARE, software=measured()) == Explanation(
        summary=f"{who}, so OpenSSL 3.0.19 (engine libcrypto) runs AES in software.", advice=advice
    )


NO_ASM = (
    "Check whether {} was built without assembly (no-asm), and whether openssl.cnf or OPENSSL_CONF brings in another "
    "provider or engine."
)
LIBRESSL = "LibreSSL left AES-NI off by mistake until September 2024: install a later release."


@pytest.mark.parametrize(
    ("machine", "library", "advice"),
    [
        ("x86_64", Library(name="OpenSSL 3.0.19", file="/opt/libcrypto.so.3"), NO_ASM.format("/opt/libcrypto.so.3")),
        ("aarch64", Library(name="OpenSSL 3.0.19"), NO_ASM.format("the library")),
        ("x86_64", Library(name="LibreSSL 3.9.2", file="/opt/libcrypto.so"), LIBRESSL),
        ("aarch64", Library(name="LibreSSL 3.9.2", file="/opt/libcrypto.so"), NO_ASM.format("/opt/libcrypto.so")),
    ],
)
def test_unused_suspects_the_library(machine: str, library: Library, advice: str) -> None:
    """What to check is the library that was measured, by its file, or a known mistake of its release."""
    hardware = measured("aes", name=library.name, file=library.file)

    assert told(State.UNUSED, host("aes", machine=machine), hardware=hardware) == Explanation(
        summary=f"This CPU has AES instructions, but {library.name} (engine libcrypto) does not use them.",
        advice=advice,
    )


def test_unused_knows_padlock() -> None:
    """VIA's AES is reached in another way than AES instructions."""
    assert told(State.UNUSED, host("ace", "ace_en"), hardware=NO_HARDWARE, software=measured()) == Explanation(
        summary="This CPU has AES in VIA PadLock, but OpenSSL 3.0.19 (engine libcrypto) does not use it.",
        advice='OpenSSL reaches it only through its engine "padlock", which OpenSSL 4.0 no longer has; see openssl '
        "engine padlock.",
    )


def test_a_library_that_was_never_measured_has_no_name() -> None:
    """Where no path of the engine was measured, the sentence does without the library's name."""
    explanation = told(State.UNUSED, hardware=NO_HARDWARE)

    assert explanation == Explanation(
        summary="This CPU has AES instructions, but the library (engine libcrypto) does not use them.",
        advice=NO_ASM.format("the library"),
    )


HYPERVISORS = ("", "KVM", "VMware", "Hyper-V", "Xen", "OpenStack", "VirtualBox", "Amazon EC2")


@pytest.mark.parametrize(("state", "hypervisor"), list(itertools.product(State, HYPERVISORS)))
@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "s390x"])
def test_nobody_has_to_read_more_than_two_sentences(state: State, hypervisor: str, machine: str) -> None:
    """Summary and advice are one or two whole sentences on one line, whatever the facts."""
    where = host(machine=machine, hypervisor=hypervisor)

    for hardware in (NO_HARDWARE, TIMED_OUT, measured("aes")):
        explanation = told(state, where, hardware=hardware, masks=(MASK,), forced=measured("aes"))
        for text in (explanation.summary, explanation.advice):
            assert re.fullmatch(r"[A-Z].*\.", text)
            assert len(re.findall(r"\. [A-Z]", text)) <= 1


# Without a state


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Failure(reason=Reason.ENGINE_UNAVAILABLE, detail="no compiler"),
            "Of engine libcrypto nothing is known: this engine cannot be used here (engine_unavailable): no compiler.",
        ),
        (None, "The hardware path is not measured."),
        (measured(), "Neither this host nor the library shows CPU flags."),
    ],
    ids=["unavailable", "left out", "no flags"],
)
def test_where_nobody_can_tell(outcome: Outcome | None, words: str) -> None:
    """Where there is no state the explanation says why there is none, and there still is advice."""
    software = measured("ssse3")
    explanation = explain(None, "libcrypto", run(outcome, software=software), host())

    assert explanation.summary == words
    assert explanation.advice


@pytest.mark.parametrize("state", [*State, None])
def test_every_state_has_a_short_answer(state: State | None) -> None:
    """The short answer is one sentence, and only ACCELERATED says yes."""
    assert re.fullmatch(r"[A-Z][^.]*\.", answer(state))
    assert (answer(state) == "AES is accelerated here.") == (state is State.ACCELERATED)


def test_why_has_words_reason_and_details() -> None:
    """What was not measured has words for people, the reason as in the metrics, and details where there are any."""
    assert why(TIMED_OUT) == "no answer in time (timeout): no reply within 10 s"
    assert why(NO_HARDWARE) == "this CPU shows no AES instructions (no_hardware)"
