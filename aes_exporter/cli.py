"""The program: arguments in, exit code out. Here the rooms are built and joined, and only here is printed.

Exit codes: 0 done, or ended by a signal while serving; 1 it did not work; 2 bad usage or configuration. bench has 3 for
a lane that applies and was not measured, 130 and 143 for SIGINT and SIGTERM. An error is one line on standard error.
"""

# ruff: noqa: T201     printing is this file's business
# ruff: noqa: PLC0415  rooms are imported where they are built: bench needs no server, the daemon no tables

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from aes_exporter import __version__, config, logs, usage
from aes_exporter.config import Config, ConfigError
from aes_exporter.model import Host, Run, Snapshot

if TYPE_CHECKING:
    from aes_exporter.server import Server
    from aes_exporter.web.current import CurrentWebConfig
    from aes_exporter.web.guard import App

_log = logging.getLogger(__name__)


def main() -> None:
    """Run the program and end the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with ">&-"
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    code = run(sys.argv[1:], os.environ)
    for stream in (sys.stdout, sys.stderr):
        _discard_unwritable(stream)
    sys.exit(code)


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the arguments ask for and return the exit code."""
    try:
        return _perform(arguments, environ)
    except ConfigError as error:
        return _failed(str(error), code=2)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of the output has seen enough
        return 1
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        _log.debug("unexpected error", exc_info=True)
        return _failed(f"unexpected {type(error).__name__}: {error}")


def _perform(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    request = usage.parse(arguments)
    if isinstance(request, str):
        return _write(request)
    settings = config.load(request.command, request.given, environ)
    logs.configure(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        _log.warning(warning)
    return _serve(settings) if request.command == "serve" else _bench(settings)


def _write(text: str) -> int:
    _deliver(f"{text}\n".encode(), None)
    return 0


def _deliver(data: bytes, output: Path | None) -> None:
    """Write to a file or to standard output; an OSError names which."""
    try:
        if output:
            from aes_exporter import report

            report.write(output, data)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output or "standard output")) from error


def _failed(what: str, code: int = 1) -> int:
    with contextlib.suppress(OSError):
        print(f"{usage.PROGRAM}: {logs.printable(what)}", file=sys.stderr, flush=True)
    return code


def _discard_unwritable(stream: TextIO) -> None:
    """Let the interpreter's own flush at the end succeed; it would print a traceback and replace the exit code."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# Serving


def _serve(settings: Config) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a script
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _admit_signals()
        web_config = _web_config(settings)
        return _write("The configuration is valid.") if settings.check else _listen(settings, web_config)
    except KeyboardInterrupt:  # before the event loop looked after signals
        return 0


def _admit_signals() -> None:
    """Let in the signals that __main__ had wait, and those that the parent process had blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def _web_config(settings: Config) -> CurrentWebConfig | None:
    if settings.web_config is None:
        return None
    from aes_exporter.web.current import CurrentWebConfig
    from aes_exporter.web.document import WebConfigError

    try:
        return CurrentWebConfig(settings.web_config)
    except WebConfigError as error:
        raise ConfigError(f"--web.config.file: {error}") from error


def _listen(settings: Config, web_config: CurrentWebConfig | None) -> int:
    from aes_exporter import server

    try:
        sockets = server.listen(settings.listen)
    except server.ListenError as error:
        return _failed(str(error))
    with contextlib.ExitStack() as stack:
        for listening in sockets:
            stack.enter_context(listening)
        asyncio.run(_daemon(settings, sockets, web_config))
    return 0


async def _daemon(
    settings: Config, sockets: Sequence[socket.socket], web_config: CurrentWebConfig | None = None
) -> None:
    """Measure and serve until a signal comes."""
    from aes_exporter import exposition, host, rounds, server
    from aes_exporter.notify import ServiceManager
    from aes_exporter.page import page
    from aes_exporter.schedule import Schedule

    if os.geteuid() == 0:
        _log.warning("running as root, which is not needed")
    stop, first_run_ended = _stopped_by_signal(), asyncio.Event()

    async def measure(first: bool) -> Run:
        plan = replace(settings.plan, pause_seconds=0.0) if first else settings.plan
        schedule.replace_host(host.refresh(schedule.snapshot.host))
        try:
            return await rounds.measure(plan, schedule.snapshot.host)
        finally:
            gc.collect()  # asyncio's transports are cycles: those of closed connections would wait for the collector
            first_run_ended.set()

    async def complete_host() -> None:
        await first_run_ended.wait()
        schedule.replace_host(await host.complete(schedule.snapshot.host))

    def snapshot() -> Snapshot:
        return replace(schedule.snapshot, web_config=web_config.reading if web_config else None)

    state = Snapshot(host=host.read(), lanes=settings.plan.lanes, interval_seconds=settings.interval_seconds)
    schedule = Schedule(state, measure)
    app = server.application(
        registry=exposition.registry(snapshot),
        telemetry_path=settings.telemetry_path,
        healthy=schedule.healthy,
        ready=schedule.ready,
        page=lambda: page(
            schedule.snapshot, settings.telemetry_path, now=time.time(), seconds_to_next=schedule.seconds_to_next()
        ),
    )
    web = _server(settings, app, web_config)
    serving = asyncio.create_task(web.serve(sockets))
    manager = ServiceManager(os.environ)
    companions = [asyncio.create_task(complete_host()), asyncio.create_task(manager.keep_alive(schedule.healthy))]
    schedule.start()
    manager.ready()
    _log.info("started", extra=_facts(settings, sockets))
    await asyncio.wait({serving, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    _log.info("stopping")
    manager.stopping()
    for companion in companions:
        companion.cancel()
    web.stop()
    await asyncio.gather(schedule.stop(), serving)


def _server(settings: Config, app: App, web_config: CurrentWebConfig | None) -> Server:
    """Return the server of the application, behind the web config if there is one, which SIGHUP has read again."""
    from aes_exporter import server

    connections = _connections(settings)
    if web_config is None:
        return server.Server(app, max_connections=connections)
    from aes_exporter.web.guard import Guard

    _log.info("web config read", extra={"protections": web_config().shown()})
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, web_config.reload)
    guard = Guard(app, web_config, open_paths=server.HEALTH_PATHS if settings.open_health else ())
    return server.Server(guard, max_connections=connections, tls=web_config.tls)


def _stopped_by_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, first)
    loop.add_signal_handler(signal.SIGHUP, _log.info, "nothing to reload on SIGHUP")
    return stop


def _connections(settings: Config) -> int:
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = config.affordable_connections(settings.max_connections, open_files)
    if connections < settings.max_connections:
        _log.warning("fewer connections for want of files", extra={"connections": connections, "files": open_files})
    return connections


def _facts(settings: Config, sockets: Sequence[socket.socket]) -> dict[str, object]:
    names = (listening.getsockname() for listening in sockets)
    addresses = [str(config.Address(host=name[0], port=name[1])) for name in names]
    return {
        "version": __version__,
        "addresses": ",".join(addresses),
        "telemetry_path": settings.telemetry_path,
        "interval_seconds": settings.interval_seconds,
        "run_seconds": round(settings.plan.seconds(), 3),
    }


# Measuring once


def _bench(settings: Config) -> int:
    codes = [128 + signal.SIGINT]

    def terminate(number: int, _frame: object) -> None:
        codes.append(128 + number)
        signal.raise_signal(signal.SIGINT)  # which asyncio turns into a clean end, as Ctrl-C

    signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored, as in a script's background
    signal.signal(signal.SIGTERM, terminate)
    try:
        _admit_signals()
        known, run = asyncio.run(_measure_once(settings))
        _deliver(_rendered(settings.format, known, run), settings.output)
    except KeyboardInterrupt:
        return codes[-1]
    return 3 if _report_failures(run) else 0


async def _measure_once(settings: Config) -> tuple[Host, Run]:
    from aes_exporter import host, report, rounds

    known = host.read()
    known = await host.complete(known)
    with report.progress() as advance:
        return known, await rounds.measure(settings.plan, known, progress=advance)


def _report_failures(run: Run) -> int:
    """Log the lanes that failed, which not every format has a place for, and return their number."""
    failures = dict(run.failures())
    for lane, failure in failures.items():
        facts = {"engine": lane.engine, "path": lane.path, "reason": failure.reason.value, "detail": failure.detail}
        _log.warning("lane failed", extra=facts)
    return len(failures)


def _rendered(form: str, known: Host, run: Run) -> bytes:
    from aes_exporter import exposition, report

    if form == "prometheus":
        return exposition.textfile(known, run)
    text = {"table": report.table, "json": report.json_text, "csv": report.csv_text}[form]
    return text(known, run).encode()
