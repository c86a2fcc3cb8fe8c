"""Flags and environment variables -> one frozen Config, or a ConfigError that names the option at fault.

In: what was written, as text, by flag and by variable. Out: checked values, and warnings for the log. It must not know
how a command line is taken apart, and it neither prints nor ends the program.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aes_exporter.model import ENGINES, PATHS, Lane, Plan
from aes_exporter.notation import SECOND, Address, shown
from aes_exporter.options import OPTIONS, PREFIX, Command, Option
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell

__all__ = ["Address", "Config", "ConfigError", "affordable_connections", "load"]

_MOST_BLOCK_SIZES = 64
_RESERVED_FILES = 64  # for the workers' pipes, the listening sockets and what a scrape reads in /proc

# What Kubernetes adds, after our prefix, to the environment of a pod where there is a Service named aes-exporter.
_KUBERNETES = re.compile("SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?")


class ConfigError(Exception):
    """An option was refused. The message is one line that begins with the flag or the variable it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that was asked for. `output` is None for standard output; `warnings` are lines for the log."""

    plan: Plan
    listen: tuple[Address, ...]
    telemetry_path: str
    web_config: Path | None
    open_health: bool
    max_connections: int
    check: bool
    interval_seconds: float
    log_level: str
    log_format: str
    format: str
    output: Path | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    source: str
    text: str
    value: Any


def load(command: Command, given: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> Config:
    """Return the configuration of `command` from the texts `given` by flag, which win over the environment.

    Options of the other command keep their defaults. Raises ConfigError for the first one that is refused.
    """
    settings = {option.flag: _read(option, command, given, environ) for option in OPTIONS}
    value = {flag: setting.value for flag, setting in settings.items()}
    _check_block_sizes(settings["--benchmark.block-size"])
    plan = _plan(command, value)
    if command == "serve":
        _check_interval(settings["--benchmark.interval"], plan)
    return Config(
        plan=plan,
        listen=value["--web.listen-address"],
        telemetry_path=value["--web.telemetry-path"],
        web_config=value["--web.config.file"],
        open_health=value["--web.open-health"],
        max_connections=value["--web.max-connections"],
        check=value["--config.check"],
        interval_seconds=value["--benchmark.interval"] / SECOND,
        log_level=value["--log.level"],
        log_format=value["--log.format"],
        format=value["--format"],
        output=value["--output"],
        warnings=(
            *_unknown_variables(environ),
            *_short_budget(settings["--benchmark.timeout"], plan),
            *_open_anyway(settings["--web.open-health"], value["--web.config.file"]),
        ),
    )


def affordable_connections(asked: int, open_files: int) -> int:
    """Return how many connections fit into the number of files the process may open (any number if negative)."""
    return asked if open_files < 0 else max(1, min(asked, open_files - _RESERVED_FILES))


def _read(option: Option, command: Command, given: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> _Setting:
    source, texts = option.flag, [] if option.default is None else [option.default]
    if command in option.commands:
        if given.get(option.flag):
            texts = [*given[option.flag]]
        elif environ.get(option.variable):
            source, texts = option.variable, [environ[option.variable]]
    try:
        return _Setting(source=source, text=",".join(texts), value=_value(option, texts))
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{source}: {shown(texts[0])}: {error.strerror}") from error


def _value(option: Option, texts: Sequence[str]) -> Any:
    if option.repeatable:
        return tuple(dict.fromkeys(option.parse(item.strip()) for text in texts for item in text.split(",")))
    if len(texts) > 1:
        raise ValueError(f"expected once, got {len(texts)} times")
    return option.parse(texts[0]) if texts else None


def _plan(command: Command, value: Mapping[str, Any]) -> Plan:
    plan = Plan(
        lanes=tuple(
            Lane(engine=engine, path=path)
            for engine in _chosen(ENGINES, value["--benchmark.engine"])
            for path in _chosen(PATHS, value["--benchmark.path"])
        ),
        cells=tuple(
            Cell(algorithm=algorithm, operation=operation, block_size=block_size)
            for algorithm in _chosen(ALGORITHMS, value["--benchmark.algorithm"])
            for operation in _chosen(OPERATIONS, value["--benchmark.operation"])
            for block_size in sorted(value["--benchmark.block-size"])
        ),
        rounds=value["--benchmark.rounds"],
        slice_ns=value["--benchmark.slice"],
        pause_seconds=value["--benchmark.pause"] / SECOND,
        budget_seconds=min(value["--benchmark.timeout"], value["--benchmark.interval"]) / SECOND,
        nice=value["--benchmark.nice"],
        cpu=value["--benchmark.cpu"],
        libcrypto=value["--benchmark.libcrypto"],
    )
    return plan if command == "serve" else _at_once(plan)


def _at_once(plan: Plan) -> Plan:
    """Return the plan without pauses and with time enough for all its rounds on a host ten times too slow."""
    plan = replace(plan, pause_seconds=0.0)
    return replace(plan, budget_seconds=60 + 10 * plan.seconds())


def _chosen(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    return [name for name in names if name in wanted]


def _check_block_sizes(sizes: _Setting) -> None:
    if len(sizes.value) > _MOST_BLOCK_SIZES:
        raise ConfigError(f"{sizes.source}: expected at most {_MOST_BLOCK_SIZES} sizes, got {len(sizes.value)}")


def _check_interval(interval: _Setting, plan: Plan) -> None:
    takes = plan.seconds()
    if interval.value < 1.5 * takes * SECOND:
        raise ConfigError(
            f"{interval.source}: expected at least {math.ceil(1.5 * takes)}s, 1.5 times the {math.ceil(takes)}s of a "
            f"run, got {shown(interval.text)}; or lower --benchmark.rounds, --benchmark.pause or --benchmark.slice"
        )


def _short_budget(timeout: _Setting, plan: Plan) -> Iterator[str]:
    if plan.budget_seconds < plan.seconds():
        takes = math.ceil(plan.seconds())
        yield f"{timeout.source}: {timeout.text} ends a run before its {plan.rounds} rounds, which take {takes}s"


def _open_anyway(open_health: _Setting, web_config: Path | None) -> Iterator[str]:
    if open_health.value and web_config is None:
        yield f"{open_health.source}: has no effect without --web.config.file"


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = [option.variable.removeprefix(PREFIX) for option in OPTIONS]
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and environ[variable] and name not in known and not _KUBERNETES.fullmatch(name):
            near = "".join(f"; did you mean {PREFIX}{other}?" for other in difflib.get_close_matches(name, known, n=1))
            yield f"unknown environment variable {shown(variable)}{near}"
