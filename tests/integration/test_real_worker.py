"""The real worker with a budget of milliseconds: real libcrypto, real masks, real bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aes_exporter import __version__, capabilities, paths, rounds, workers
from aes_exporter.model import BLOCK_SIZES, Failure, Host, Lane, Measurement, Plan
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell, Reason
from aes_exporter.worker.messages import Setup, Turn
from aes_exporter.workers import WorkerError

CELLS = tuple(
    Cell(algorithm=algorithm, operation=operation, block_size=size)
    for algorithm in ALGORITHMS
    for operation in OPERATIONS
    for size in BLOCK_SIZES
)
MACHINE = capabilities.architecture()
HARDWARE = Lane(engine="libcrypto", path="hardware")
SOFTWARE = Lane(engine="libcrypto", path="software")
PLAN = Plan(
    lanes=(HARDWARE, SOFTWARE),
    cells=CELLS,
    rounds=5,
    slice_ns=100_000,
    pause_seconds=0.0,
    budget_seconds=30.0,
    nice=0,
    cpu=None,
    libcrypto=None,
)
SETUP = Setup(
    version=__version__, engine="libcrypto", libcrypto=None, cells=CELLS[:1], slice_ns=100_000, nice=0, cpu=None
)
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}

needs_x86 = pytest.mark.skipif(MACHINE != "x86_64", reason="masks are known for x86-64 only")


def flags() -> frozenset[str] | None:
    text = Path("/proc/cpuinfo").read_text()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.split()) or None


async def refused(setup: Setup, environment: dict[str, str] = ENVIRONMENT) -> WorkerError:
    with pytest.raises(WorkerError) as failure:
        async with workers.start(environment) as worker:
            await worker.set_up(setup)
    return failure.value


@needs_x86
async def test_both_paths_are_measured_and_hardware_is_faster() -> None:
    """A short run on this machine gives figures for both paths, with hardware well above masked software."""
    if "aes" not in (flags() or ()):
        pytest.skip("this CPU has no AES instructions")

    run = await rounds.measure(PLAN, Host(architecture=MACHINE, flags=flags()))

    assert not list(run.failures())
    assert run.rounds == 5
    assert {speedup.cell for speedup in run.speedups()} == set(CELLS)
    large = [speedup.ratio for speedup in run.speedups() if speedup.cell.block_size >= 1024]
    assert min(large) > 1.2
    hardware = run.outcomes[HARDWARE]
    assert isinstance(hardware, Measurement)
    assert "aes" in hardware.cpu_flags
    assert Path(hardware.library.file).name.startswith("libcrypto.so")


async def test_the_worker_pins_itself_and_takes_its_nice_value() -> None:
    """The worker reports the CPU it was sent to, and the kernel agrees with it on CPU and nice value."""
    cpu = max(os.sched_getaffinity(0))

    async with workers.start(ENVIRONMENT) as worker:
        ready = await worker.set_up(replace(SETUP, cpu=cpu, nice=3))
        affinity = os.sched_getaffinity(worker.pid)
        nice = os.getpriority(os.PRIO_PROCESS, worker.pid)

    assert ready.cpu == cpu
    assert affinity == {cpu}
    assert nice == 3
    assert ready.notes == ()


async def test_without_a_cpu_it_stays_where_it_was_started() -> None:
    """Told no CPU, the worker pins itself to the one it runs on and says which."""
    async with workers.start(ENVIRONMENT) as worker:
        ready = await worker.set_up(SETUP)
        affinity = os.sched_getaffinity(worker.pid)

    assert affinity == {ready.cpu}


async def test_a_cpu_that_does_not_exist_means_unpinned_and_says_so() -> None:
    """If the kernel refuses the CPU, the worker measures all the same, reports no CPU, and says what was refused."""
    async with workers.start(ENVIRONMENT) as worker:
        ready = await worker.set_up(replace(SETUP, cpu=8000))

    assert ready.cpu is None
    assert ready.notes == ("not pinned to a CPU: Invalid argument",)


@needs_x86
async def test_the_mask_is_read_back_from_the_library() -> None:
    """Under the software path's environment the library's own words show AES off and all else unchanged."""
    words = {}
    for path in ("hardware", "software"):
        environment = paths.environment(path, MACHINE, os.environ)
        assert isinstance(environment, dict)
        async with workers.start(environment) as worker:
            ready = await worker.set_up(SETUP)
        words[path] = capabilities.parse_words(ready.capabilities)
    if words["hardware"] is None:
        pytest.skip("the installed libcrypto does not tell its capability words")

    assert words["software"] is not None
    difference = [hardware ^ software for hardware, software in zip(words["hardware"], words["software"], strict=True)]
    assert difference == [words["hardware"][0] & (1 << 57 | 1 << 33), *[0] * (len(difference) - 1)]


async def test_a_capability_variable_of_the_daemons_own_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask exported to the daemon does not reach the hardware worker."""
    monkeypatch.setenv("OPENSSL_ia32cap", "~0x200000200000000")

    run = await rounds.measure(
        replace(PLAN, lanes=(HARDWARE,), cells=CELLS[:1]), Host(architecture=MACHINE, flags=flags())
    )

    outcome = run.outcomes[HARDWARE]
    if "aes" in (flags() or ()):
        assert isinstance(outcome, Measurement)
        assert "aes" in outcome.cpu_flags


@pytest.mark.parametrize(
    ("setup", "reason", "detail"),
    [
        (replace(SETUP, version="0.0.0"), Reason.VERSION_MISMATCH, "the daemon 0.0.0: restart it"),
        (replace(SETUP, engine="abacus"), Reason.ENGINE_UNAVAILABLE, "no engine is called abacus"),
        (replace(SETUP, libcrypto="/nonexistent.so"), Reason.ENGINE_UNAVAILABLE, "/nonexistent.so: cannot open shared"),
        (
            replace(SETUP, libcrypto="libm.so.6"),
            Reason.ENGINE_UNAVAILABLE,
            "libm.so.6 has no function EVP_EncryptUpdate",
        ),
        (replace(SETUP, libcrypto=__file__), Reason.ENGINE_UNAVAILABLE, "invalid ELF header"),
    ],
)
async def test_what_cannot_be_measured_is_refused_by_name(setup: Setup, reason: Reason, detail: str) -> None:
    """A library or request that the worker cannot use is a refusal with its reason, not a crash."""
    failure = await refused(setup)

    assert failure.reason is reason
    assert detail in failure.detail


async def test_without_the_compiled_loop_the_engine_says_what_to_do(
    tmp_path: Path, copy_package: Callable[[Path], Path]
) -> None:
    """A package without its shared object gives engine_unavailable with the way out."""
    root = copy_package(tmp_path)
    (root / "aes_exporter" / "worker" / "hotloop.so").unlink()
    command = (*workers.COMMAND[:-1], str(root))

    with pytest.raises(WorkerError) as failure:
        async with workers.start(ENVIRONMENT, command=command) as worker:
            await worker.set_up(SETUP)

    assert failure.value.reason is Reason.ENGINE_UNAVAILABLE
    assert "hotloop.so" in failure.value.detail
    assert "C compiler" in failure.value.detail


async def test_wrong_bytes_are_a_failure_and_never_a_throughput(
    tmp_path: Path, copy_package: Callable[[Path], Path]
) -> None:
    """Bytes other than the known answer (here altered instead of the library) are refused before anything is timed."""
    root = copy_package(tmp_path)
    answers = root / "aes_exporter" / "worker" / "answers.py"
    answers.write_text(answers.read_text().replace("3ad77bb4", "3ad77bb5"))
    command = (*workers.COMMAND[:-1], str(root))
    cells = (Cell(algorithm="aes-128-ecb", operation="encrypt", block_size=64),)

    with pytest.raises(WorkerError) as failure:
        async with workers.start(ENVIRONMENT, command=command) as worker:
            await worker.set_up(replace(SETUP, cells=cells))

    assert failure.value.reason is Reason.WRONG_ANSWER
    assert failure.value.detail == "aes-128-ecb encrypt of 64 bytes gave wrong bytes"


async def test_a_stray_print_does_not_reach_the_channel(tmp_path: Path, copy_package: Callable[[Path], Path]) -> None:
    """What a library prints on standard output goes to standard error, so that replies stay whole."""
    root = copy_package(tmp_path)
    engine = root / "aes_exporter" / "worker" / "engines" / "libcrypto.py"  # imported after the channel was taken
    engine.write_text(engine.read_text() + "\nimport os\nos.write(1, b'stray')\nprint('stray', flush=True)\n")
    command = (*workers.COMMAND[:-1], str(root))

    async with workers.start(ENVIRONMENT, command=command) as worker:
        await worker.set_up(SETUP)
        reply = await worker.take_turn(Turn(first=0, step=1), cells=1)

    (taken,) = reply.slices
    assert len(list(taken.parts)) == 4
    assert sum(taken.timings) <= taken.wall_ns
    assert all((probe > 0) is (MACHINE in ("x86_64", "aarch64")) for _, probe in taken.parts)


async def test_a_worker_ends_with_its_input() -> None:
    """A worker whose daemon is gone, however it went, ends by itself."""
    async with workers.start(ENVIRONMENT) as worker:
        await worker.set_up(SETUP)
        assert worker._child._stdin
        worker._child._stdin.close()
        code = await worker._child.wait()

    assert code == 0


async def test_a_malformed_request_ends_the_worker_with_words() -> None:
    """A request the worker cannot read is a crash whose last words say so."""
    async with workers.start(ENVIRONMENT) as worker:
        await worker.set_up(SETUP)
        with pytest.raises(WorkerError) as failure:
            await worker.take_turn(Turn(first=99, step=1), cells=1)

    assert failure.value.reason is Reason.CRASH
    assert failure.value.detail == "exit code 1: bad request: no cell 99 among 1"


async def test_one_hung_worker_does_not_stop_the_others() -> None:
    """A software worker stopped for good fails by its own deadline; hardware gets all its rounds and no one is left."""
    software = paths.environment("software", MACHINE, os.environ)

    def start(environment):  # type: ignore[no-untyped-def]
        stopped = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
        if environment == software:
            return workers.start(environment, command=(workers.COMMAND[0], "-c", stopped), reply_seconds=0.3)
        return workers.start(environment)

    run = await rounds.measure(PLAN, Host(architecture=MACHINE, flags=flags()), start=start)

    outcome = run.outcomes[SOFTWARE]
    if MACHINE == "x86_64":
        assert isinstance(outcome, Failure)
        assert outcome.reason is Reason.TIMEOUT
    assert run.rounds == 5


@needs_x86
async def test_the_path_table_is_another_baseline() -> None:
    """With SSSE3 masked, too, the table code runs, and there is a speed-up against it beside that against software."""
    table = Lane(engine="libcrypto", path="table")

    run = await rounds.measure(replace(PLAN, lanes=(HARDWARE, SOFTWARE, table)), Host(architecture=MACHINE))

    outcome = run.outcomes[table]
    assert isinstance(outcome, Measurement)
    assert not {"aes", "pclmulqdq", "ssse3"} & set(outcome.cpu_flags)
    assert {figure.implementation for figure in outcome.figures} <= {"table", "unknown"}
    assert {speedup.baseline for speedup in run.speedups()} == {"software", "table"}
